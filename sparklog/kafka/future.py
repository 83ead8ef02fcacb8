"""The base class of the futures that ``send`` returns: ``kafka.future``."""

from sparklog.client.producer.futures import Future as Future
