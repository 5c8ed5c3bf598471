"""The record of a machine that a listing shows and that no launch request's slot is for."""

from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import Instant, MachineId, ProviderName
from autoscaler.model.machines.machine import Machine, MachineState, Placement


def new_machine(
    provider: ProviderName, listed: ListedMachine, at: Instant, state: MachineState, why: str
) -> Machine:
    """Return a record of the machine. Its ID is made from the provider's ID."""
    return Machine(
        id=MachineId(f"x-{listed.provider_id}"),
        sku=listed.sku,
        provider=provider,
        launch_request=listed.launch_request,
        slot=-1,
        created_at=at,
        state=state,
        since=at,
        placement=Placement(
            dollars_per_hour=listed.dollars_per_hour,
            quota_usage=listed.quota_usage,
            provider_id=listed.provider_id,
            instance_type=listed.instance_type,
            zone=listed.zone,
            capacity_type=listed.capacity_type,
            image=listed.image,
            launch_time=listed.launch_time,
            host=listed.host,
        ),
        reason=why,
    )
