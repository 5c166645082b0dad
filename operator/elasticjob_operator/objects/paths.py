"""Where the API server keeps each kind of object that the operator makes or reads."""

from elasticjob.api import GROUP, VERSION

CORE = "/api/v1"
CUSTOM = f"/apis/{GROUP}/{VERSION}"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
POLICY = "/apis/policy/v1"
COORDINATION = "/apis/coordination.k8s.io/v1"
QUEUES_GROUP, QUEUES_VERSION = "kueue.x-k8s.io", "v1beta2"
QUEUES = f"/apis/{QUEUES_GROUP}/{QUEUES_VERSION}"
