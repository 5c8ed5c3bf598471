"""The names that other tools have for keys of clusters and pods (`config/settings/other_names.py`)."""

from autoscaler.config.settings.other_names import table

_OVERLAY = "write it in overlay, in the form of a Pod"

CLUSTER = table(
    ("cluster clustername", "write context, the name of the kubeconfig's context"),
    ("config configfile", "write kubeconfig"),
    ("serviceaccountname", "write service_account"),
)

POD = table(
    ("cpu memory requests limits", 'write resources: {cpu: "4", memory: 16Gi}'),
    ("gpu gpus", "write accelerator: {vendor: nvidia, count: NUMBER} in the SKU"),
    (
        "env volumes volumemounts containers securitycontext affinity annotations labels spec metadata "
        "template initcontainers imagepullsecrets hostnetwork",
        _OVERLAY,
    ),
    ("serviceaccountname serviceaccount", "write service_account below providers.NAME.kubernetes"),
    ("runtimeclassname", "write runtime_class"),
)

TOLERATION = table(
    ("operator", "remove it: without value it is Exists, with a value it is Equal"),
    ("tolerationseconds", "write the toleration in overlay, below spec.tolerations"),
)
