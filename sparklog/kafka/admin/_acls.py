"""ACLs as data (calls that take them are refused): ``kafka.admin._acls``."""

from sparklog.client.admin.security import ACL as ACL
from sparklog.client.admin.security import ACLFilter as ACLFilter
from sparklog.client.admin.security import ACLOperation as ACLOperation
from sparklog.client.admin.security import ACLPermissionType as ACLPermissionType
from sparklog.client.admin.security import ACLResourcePatternType as ACLResourcePatternType
from sparklog.client.admin.security import ResourcePattern as ResourcePattern
from sparklog.client.admin.security import ResourcePatternFilter as ResourcePatternFilter
from sparklog.client.admin.security import ResourceType as ResourceType
