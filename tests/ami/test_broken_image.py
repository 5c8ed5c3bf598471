"""`autoscaler images publish` on an image that boots, and on which a service fails."""

import asyncio

import pytest

from tests.ami.account import Place, start_autoscaler
from tests.ami.conftest import Built
from tests.lab.system.harness import until
from tests.lab.system.pace import PATIENCE

BROKEN = "[Unit]\nBefore=cloud-final.service\n[Service]\nType=oneshot\nExecStart=/bin/false\n"


@pytest.mark.asyncio(loop_scope="session")
async def test_an_image_whose_service_fails_at_boot_is_not_published(
    account: Place, built: Built
) -> None:
    images, host = account.ec2.images, account.host
    tested = next(
        one for one in account.ec2.instances if one.specification.image.id == built.image.id
    )
    await until(lambda: tested.terminated_at is not None, PATIENCE, lambda: tested.state)
    # The disk of the machine that tested the image becomes an image with one service more.
    services = host.disk(tested.id) / "etc/systemd/system"
    (services / "multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    (services / "broken.service").write_text(BROKEN)
    (services / "multi-user.target.wants/broken.service").symlink_to("../broken.service")
    images.imaging = 0.0
    broken = images.create(built.image, "broken", source=tested.id, size_gb=8)
    words = ["images", "publish", broken.id, "--instance-type", "m7i.large"]
    process = start_autoscaler(account, *words)
    _, error = await asyncio.to_thread(process.communicate)
    assert process.returncode == 1, error
    assert error.endswith(": a service failed at boot\n")
    assert images.find(broken.id).tags == {"autoscaler:test-failed": "a service failed at boot"}
