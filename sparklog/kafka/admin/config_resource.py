"""Resources with configs, where kafka-python 2 has them."""

from sparklog.client.admin.types import ConfigResource as ConfigResource
from sparklog.client.admin.types import ConfigResourceType as ConfigResourceType
