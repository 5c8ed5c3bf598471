"""Makes images of instances and stops instances, as a build of an image does.

Answers StopInstances, CreateImage and ModifyImageAttribute.
"""

from autoscaler.model.catalogue import CapacityType
from lab.ec2.describing import found, state_shown
from lab.ec2.images import Images
from lab.ec2.instances import Instances, InstanceState
from lab.ec2.launch_data import requested_tags
from lab.ec2.lifecycle import Lifecycle
from lab.ec2.query import Ec2Error, Tree, answer, element

CREATE_PARAMETERS = frozenset(
    {
        "Action",
        "Version",
        "BlockDeviceMapping",
        "Description",
        "InstanceId",
        "Name",
        "NoReboot",
        "TagSpecification",
    }
)


class ImageMaking:
    """Stops the instances of an account and makes images of them."""

    def __init__(self, instances: Instances, lifecycle: Lifecycle, images: Images) -> None:
        self._instances = instances
        self._lifecycle = lifecycle
        self._images = images

    def stop(self, params: Tree) -> str:
        """Answer StopInstances. Raises Ec2Error, and then stops none of the instances."""
        named = found(self._instances, self._lifecycle, params.texts("InstanceId"))
        for one in named:
            if one.state in (InstanceState.SHUTTING_DOWN, InstanceState.TERMINATED):
                raise Ec2Error(
                    "IncorrectInstanceState",
                    f"This instance '{one.id}' is not in a state from which it can be stopped.",
                )
            if one.capacity_type is CapacityType.SPOT:
                raise Ec2Error(
                    "UnsupportedOperation",
                    f"You can't stop the Spot Instance '{one.id}' because it is associated with a "
                    "one-time Spot Instance request.",
                )
        changes = []
        for one in named:
            before = one.state
            self._lifecycle.stop(one)
            changes.append(
                {
                    "instanceId": one.id,
                    "currentState": state_shown(one.state),
                    "previousState": state_shown(before),
                }
            )
        return answer("StopInstances", element("instancesSet", changes))

    def create(self, params: Tree) -> str:
        """Answer CreateImage. Raises Ec2Error, also where EC2 would reboot the instance."""
        unknown = params.keys() - CREATE_PARAMETERS
        if unknown:
            raise Ec2Error("UnsupportedOperation", f"The lab does not do {sorted(unknown)[0]}.")
        (one,) = found(self._instances, self._lifecycle, [params.text("InstanceId")])
        if one.state not in (InstanceState.RUNNING, InstanceState.STOPPED):
            raise Ec2Error("IncorrectState", "Instance is not in state 'running' or 'stopped'")
        if one.state is InstanceState.RUNNING and params.text("NoReboot", "false") != "true":
            raise Ec2Error("UnsupportedOperation", "The lab does not reboot instances.")
        image = self._images.create(
            one.specification.image,
            params.text("Name"),
            source=one.id,
            size_gb=one.specification.disk.gb,
            description=params.text("Description"),
            tags=requested_tags(params, "image"),
            snapshot_tags=requested_tags(params, "snapshot"),
        )
        return answer("CreateImage", element("imageId", image.id))

    def modify_attribute(self, params: Tree) -> str:
        """Answer ModifyImageAttribute, which in the lab sets only the description. Raises Ec2Error."""
        if "Description" not in params:
            raise Ec2Error("UnsupportedOperation", "The lab sets only an image's description.")
        described = params.structure("Description").text("Value")
        self._images.change(params.text("ImageId"), description=described)
        return answer("ModifyImageAttribute", element("return", True))
