"""Topics to create, where kafka-python 2 has them."""

from sparklog.client.admin.types import NewTopic as NewTopic
