"""Which old images are deleted, and the calls that list and delete them at the lab's EC2."""

from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.providers.ec2.images.account import AwsRegion, ImageEc2Error
from autoscaler.providers.ec2.images.pruning import (
    AwsPruning,
    Found,
    MadeImage,
    MadeSnapshot,
    choose,
    delete_all,
)

NOW = datetime(2026, 11, 23, tzinfo=UTC)
CPU, ARM = ("linux-cpu", "x86_64"), ("linux-cpu", "arm64")


def made(
    number: int, days: float, group: tuple[str, str] = CPU, published: bool = True
) -> MadeImage:
    created = NOW - timedelta(days=days)
    name = f"autoscaler/{number}"
    return MadeImage(f"ami-{number}", name, created, group, published, (f"snap-{number}",))


def chosen(*images: MadeImage, in_use: frozenset[str] = frozenset(), keep: int = 1) -> list[str]:
    found = Found(images, (), in_use)
    return [one.id for one in choose(found, NOW, keep, timedelta(days=14))]


def test_the_newest_published_images_of_each_recipe_and_architecture_stay() -> None:
    images = (made(1, 50), made(2, 40), made(3, 30), made(4, 60, ARM))
    assert chosen(*images) == ["ami-1", "ami-2"]
    assert chosen(*images, keep=2) == ["ami-1"]


def test_an_image_that_failed_its_test_does_not_count_as_a_newer_one() -> None:
    assert chosen(made(1, 50), made(2, 40, published=False)) == ["ami-2"]


def test_an_image_in_use_stays() -> None:
    images = (made(1, 60), made(2, 50), made(3, 40))
    assert chosen(*images, in_use=frozenset({"ami-1"})) == ["ami-2"]


@pytest.mark.parametrize(("days", "deleted"), [(13.9, []), (14, ["ami-1"])])
def test_a_young_image_stays(days: float, deleted: list[str]) -> None:
    assert chosen(made(1, days), made(2, 1)) == deleted


def test_an_old_snapshot_without_an_image_is_deleted_too() -> None:
    old, young = NOW - timedelta(days=20), NOW - timedelta(days=1)
    snapshots = (
        MadeSnapshot("snap-1", old),
        MadeSnapshot("snap-2", old),
        MadeSnapshot("s-3", young),
    )
    found = Found((made(1, 20),), snapshots, frozenset())
    left = choose(found, NOW, 1, timedelta(days=14))
    assert [one.id for one in left] == ["snap-2"]


class Protected(AwsPruning):
    """EC2 with one image that it does not deregister, and two snapshots that it keeps."""

    def __init__(self) -> None:
        super().__init__("us-east-1", "ours")

    def delete_image(self, image: MadeImage) -> tuple[str, ...]:
        if image.id == "ami-1":
            raise ImageEc2Error("DeregisterImage: OperationNotPermitted")
        return image.snapshots if image.id == "ami-3" else ()

    def delete_snapshot(self, snapshot: str) -> bool:
        return snapshot != "snap-8"


def test_snapshots_that_ec2_keeps_are_not_reported_as_deleted() -> None:
    deletions = (made(3, 50), MadeSnapshot("snap-8", NOW))
    said: list[str] = []
    delete_all(Protected(), deletions, said.append)
    assert said == [
        "deleted ami-3 autoscaler/3, of 2026-10-04",
        "kept snap-3: another image uses it",
        "kept snap-8: an image uses it",
    ]


def test_an_image_that_ec2_keeps_does_not_keep_the_others() -> None:
    deletions = (made(1, 50), made(2, 40), MadeSnapshot("snap-9", NOW))
    said: list[str] = []
    with pytest.raises(ImageEc2Error, match=r"^ami-1: DeregisterImage: OperationNotPermitted$"):
        delete_all(Protected(), deletions, said.append)
    assert said == [
        "deleted ami-2 autoscaler/2, of 2026-10-14",
        "deleted snap-9, of 2026-11-23, which no image uses",
    ]


def test_without_credentials_the_error_says_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    ec2 = AwsRegion("us-east-1")
    with pytest.raises(ImageEc2Error, match=r"^DescribeImages: Unable to locate.*set AWS_PROFILE"):
        ec2.call("DescribeImages")
    with pytest.raises(ImageEc2Error, match=r"^DescribeImages: Unable to locate.*set AWS_PROFILE"):
        list(ec2.pages("DescribeImages"))
