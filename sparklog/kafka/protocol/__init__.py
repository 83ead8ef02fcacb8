"""Types that programs import from ``kafka.protocol``. No requests: there is no server to send them to."""
