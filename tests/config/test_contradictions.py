"""Values that contradict each other, all errors of a file at once, and warnings."""

import pytest

from autoscaler.agent.limits import POLL_WAIT
from autoscaler.config.checks.unusual_values import SHORTEST_SILENCE
from autoscaler.providers.ec2.configuration import Ec2SkuKeys
from tests.config.fleet_file import EXAMPLE, MINIMAL, Folder, changed, unserved


@pytest.mark.case(
    "two SKUs whose names differ only in case",
    topic="Operators' files",
    source="GitHub: labels",
)
def test_two_skus_whose_names_differ_only_in_case_are_refused(folder: Folder) -> None:
    text = MINIMAL + MINIMAL[MINIMAL.index("  gpu:") :].replace("gpu", "GPU")
    problem = folder.problem(text)
    assert (problem.line, problem.key) == (17, "skus.GPU")
    assert problem.what.startswith("repeats the SKU")


def test_an_option_on_kubernetes_takes_a_pod_and_no_types(folder: Folder) -> None:
    text = EXAMPLE.read_text()
    bare = text.replace("{provider: gpu-cluster, price: 3.5, pod:", "{provider: gpu-cluster, pods:")
    keys = [problem.key for problem in folder.problems(bare)]
    assert keys == [f'skus."linux.rocm.gpu.2".on[0].{key}' for key in ("pod", "pods")]
    typed = text.replace("price: 3.5,", "instance_types: [g5.xlarge],")
    assert folder.problem(typed).key == 'skus."linux.rocm.gpu.2".on[0].instance_types'


def test_a_missing_image_is_one_problem_of_a_sku_with_two_launch_options(folder: Folder) -> None:
    option = MINIMAL[MINIMAL.index("{provider: east") :].partition("}")[0] + "}"
    text = changed((option, f"{option}, {option.replace('g5', 'g6')}"))
    lines = [line for line in text.splitlines() if not line.startswith("    image:")]
    problem = folder.problem("\n".join(lines) + "\n")
    assert (problem.key, problem.fix) == (
        "skus.gpu.image",
        "add image: {stock: ubuntu-24.04}, or the name of an image of your own",
    )


def test_the_tags_of_a_sku_count_with_those_of_its_provider(folder: Folder) -> None:
    def text(own: int) -> str:
        theirs, ours = (
            ", ".join(f"{name}{number}: v" for number in range(count))
            for name, count in (("p", 40), ("s", own))
        )
        return changed(
            ("[sg-0a]}", f"[sg-0a], tags: {{{theirs}, s0: w}}}}"),
            ('"runner-*"}', f'"runner-*"}}\n    tags: {{{ours}}}'),
        )

    sku = folder.load(text(5)).settings.skus["gpu"]
    assert isinstance(sku, Ec2SkuKeys)
    assert sku.tags["s4"] == "v"
    problem = folder.problem(text(6))
    assert (problem.key, problem.fix) == ("skus.gpu.tags", "keep 45 in both together")
    assert "makes 46 tags" in problem.what


def test_an_error_in_one_key_of_a_volume_hides_no_other(folder: Folder) -> None:
    volume = (
        "{iops: 20000, initialization_rate: 500, "
        "kms_key: 'arn:aws:kms:eu-west-1:123456789012:alias/ci'}"
    )
    text = changed(('"runner-*"}', f'"runner-*"}}\n    disk_gb: 20\n    volume: {volume}'))
    assert [problem.key.rpartition(".")[2] for problem in folder.problems(text)] == [
        "initialization_rate",
        "iops",
        "kms_key",
    ]


WITHOUT_WEBHOOK = ("webhook_secret_file: secret", "webhook: none")


def test_without_webhooks_no_secret_is_needed(folder: Folder) -> None:
    configuration = folder.load(changed(WITHOUT_WEBHOOK))
    assert configuration.settings.github.webhook == "none"
    assert unserved(configuration) == ()


@pytest.mark.parametrize(
    ("pairs", "key"),
    [
        ([("  webhook_secret_file: secret\n", "")], "github"),
        (
            [("webhook_secret_file: secret", "webhook_secret_file: secret\n  webhook: none")],
            "github.webhook_secret_file",
        ),
        (
            [WITHOUT_WEBHOOK, ("  public_url", "  webhook_listen: 127.0.0.1:1\n  public_url")],
            "server.webhook_listen",
        ),
        ([("webhook_secret_file: secret", "webhook: off")], "github.webhook"),
    ],
)
def test_a_webhook_has_a_secret_or_is_none(
    folder: Folder, pairs: list[tuple[str, str]], key: str
) -> None:
    assert folder.problem(changed(*pairs)).key == key


def test_tls_and_insecure_exclude_each_other(folder: Folder) -> None:
    text = EXAMPLE.read_text().replace("  public_url:", "  insecure: true\n  public_url:")
    problem = folder.problem(text)
    assert (problem.key, problem.what) == ("server.insecure", "cannot be combined with tls")


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(folder: Folder) -> None:
    text = changed(
        ("fleet: ci", "fleet: CI"),
        ("webhook_secret_file: secret", "webhook_secret_fil: secret"),
        ("127.0.0.1:0", "0.0.0.0:8443"),
        ("region: us-east-1, ", ""),
        ("{provider: east", "{provider: west1"),
        ('"runner-*"}', '"runner-*"}\n    lifetime: long\n    labels: [x64]'),
    )
    problems = folder.problems(text)
    assert [(problem.line, problem.key) for problem in problems] == [
        (1, "fleet"),
        (4, "github.webhook_secret_fil"),
        (7, "server.listen"),
        (12, "providers.east.ec2.region"),
        (15, "skus.gpu.on[0].provider"),
        (17, "skus.gpu.lifetime"),
        (18, "skus.gpu.labels[0]"),
    ]


@pytest.mark.case(
    "an error does not repeat a secret that is in the wrong place",
    topic="Operators' files",
    source="CWE-532",
)
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sqlite:///state.db", "postgresql://u:hunter2@db/x"),
        ("sqlite:///state.db", "postgresql://u@db/x?password=hunter2"),
        ("sqlite:///state.db", "postgresql://u@db/x?PASSWORD=hunter2"),
        ("sqlite:///state.db", "postgresql://u@db/x?password_file=hunter2"),
        ("http://127.0.0.1:8443", "https://u:hunter2@f.example"),
        ("webhook_secret_file: secret", "webhook_secret_file: hunter2"),
        ("webhook_secret_file: secret", "webhook_secret: hunter2"),
        ("private_key_file: app.pem", "private_key_file: hunter2"),
        ("private_key_file: app.pem", 'private_key_file: "-----BEGIN\\nhunter2"'),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(folder: Folder, old: str, new: str) -> None:
    problems = [*folder.problems(changed((old, new))), *folder.refused(changed((old, new)))]
    assert "hunter2" not in "\n".join(map(str, problems))


@pytest.mark.case(
    "`lifetime` is below the six hours of a job without `timeout-minutes`: `check` warns",
    topic="Runner and listener",
    source="GitHub: workflow syntax",
)
@pytest.mark.case(
    "overlapping labels: a warning names the SKU that gets the jobs",
    topic="Operators' files",
    source="GitHub: labels",
)
@pytest.mark.parametrize(
    ("addition", "key", "what"),
    [
        (
            "    labels: [other]\n  two:\n    labels: [Other]\n",
            "skus.two",
            '"gpu" also has the label "other"',
        ),
        ("  two:\n    labels: [gpu]\n", "skus.two", '"gpu" also has the label "gpu"'),
        ("    unlabelled: true\n  two:\n    unlabelled: true\n", "skus.two.unlabelled", '"gpu" is'),
        (
            "  two:\n    access: {repositories: [acme/*, acne/*]}\n",
            "skus.two.access.repositories[1]",
            '"acne/*" matches nothing',
        ),
        (
            "  two:\n    idle: {min: 4}\n",
            "limits.machines",
            "less than the sum of the SKUs' idle.min, 4",
        ),
        (
            "  two:\n    lifetime: 359m\n",
            "skus.two.lifetime",
            "a job without timeout-minutes may run for 6h",
        ),
        ("  two:\n    idle: {max_age: 1s}\n", "skus.two.idle.max_age", "again and again"),
        ("  two:\n    deadlines: {boot: 59s}\n", "skus.two.deadlines.boot", "during a normal boot"),
        (
            "  two:\n    deadlines: {ready_silence: 59s}\n",
            "skus.two.deadlines.ready_silence",
            "which send a request every 50 s",
        ),
        (
            "  two:\n    rerun_interrupted: 1\n",
            "skus.two.rerun_interrupted",
            '"east" has no interruption_queue',
        ),
    ],
)
def test_a_file_with_warnings_is_accepted(
    folder: Folder, addition: str, key: str, what: str
) -> None:
    text = MINIMAL + addition + MINIMAL[MINIMAL.index("    on: [{") :]
    configuration = folder.load(text.replace("store:", "limits: {machines: 3}\nstore:"))
    (warning,) = configuration.warnings
    assert warning.warning
    assert warning.key == key
    assert what in warning.what
    assert f": warning: {key}: " in str(warning)


def test_a_lifetime_of_githubs_default_job_timeout_is_accepted(folder: Folder) -> None:
    assert folder.load(MINIMAL + "    lifetime: 6h\n").warnings == ()


@pytest.mark.case(
    "a queue of another region, `rerun_interrupted` without a queue, times shorter than a boot or"
    " a poll: warnings",
    topic="Operators' files",
    source="EventBridge: SQS targets",
)
def test_times_at_their_minimum_are_accepted(folder: Folder) -> None:
    times = "    idle: {max_age: 10m}\n    deadlines: {boot: 1m, ready_silence: 1m}\n"
    assert folder.load(MINIMAL + times).warnings == ()
    assert SHORTEST_SILENCE > POLL_WAIT


@pytest.mark.case(
    "a queue of another region, `rerun_interrupted` without a queue, times shorter than a boot or"
    " a poll: warnings",
    topic="Operators' files",
    source="EventBridge: SQS targets",
)
@pytest.mark.parametrize(
    ("host", "warned"),
    [
        ("sqs.us-east-1.amazonaws.com", False),
        ("sqs.eu-west-1.amazonaws.com", True),
        ("sqs-fips.us-east-2.amazonaws.com", True),
        ("vpce-0a.sqs.eu-west-1.vpce.amazonaws.com", True),
        ("queue.example", False),
    ],
)
def test_a_queue_of_another_region_is_a_warning(folder: Folder, host: str, warned: bool) -> None:
    queue = f"region: us-east-1, interruption_queue: https://{host}/1/q"
    text = changed(("region: us-east-1", queue)) + "    rerun_interrupted: 1\n"
    warnings = folder.load(text).warnings
    keys = [(one.key, one.warning) for one in warnings]
    assert keys == [("providers.east.ec2.interruption_queue", True)] * warned


@pytest.mark.case(
    "secret files that every user of the host can read",
    topic="Hostile input",
    source="CWE-732",
)
def test_secrets_that_every_user_can_read_are_a_warning(folder: Folder) -> None:
    assert folder.load(MINIMAL).warnings == ()
    (folder.path / "secret").chmod(0o644)
    (warning,) = folder.load(MINIMAL).warnings
    assert (warning.key, warning.warning) == ("github.webhook_secret_file", True)
    assert "can be read by every user of this host" in warning.what
    (folder.path / "secret").chmod(0o640)
    assert folder.load(MINIMAL).warnings == ()


@pytest.mark.case(
    "a copy of the store failed and left an empty file: a warning, because it is a new store",
    topic="EC2's machines",
    source="SQLite: how to corrupt",
)
def test_an_empty_store_is_a_warning(folder: Folder) -> None:
    store = folder.path / "state.db"
    store.touch()
    (warning,) = folder.load(MINIMAL).warnings
    assert (warning.key, warning.warning) == ("store", True)
    assert "empty file, which counts as a new store" in warning.what
    store.write_bytes(b"SQLite format 3\0")
    assert folder.load(MINIMAL).warnings == ()


def test_a_scope_without_a_sku_is_a_warning(folder: Folder) -> None:
    scopes = '[{org: Acme, repositories: ["acme/*", "*", "other/*"]}, {repo: a/b}]'
    (warning,) = folder.load(changed(("[{org: acme}]", scopes))).warnings
    assert warning.key == "github.scopes[0].repositories[2]"
    assert warning.what == '"other/*" matches no repository of "Acme"'
    assert warning.warning


def test_an_objective_that_matches_no_sku_is_a_warning(folder: Folder) -> None:
    """A SKU's name has to match from its first character to its last."""
    text = f"{MINIMAL}metrics:\n  wait_objectives:\n"
    for objective in ("gpu=a|gpu:300:0.99", "prefix=gp:60:0.9", "rest=.*:600:0.9"):
        text += f"    - {objective}\n"
    (warning,) = folder.load(text).warnings
    assert (warning.key, warning.warning) == ("metrics.wait_objectives[1]", True)
    assert (warning.what, warning.fix) == ('"gp" matches no SKU', "correct it, or remove it")
    assert warning.line == text.count("\n") - 1


@pytest.mark.parametrize("kind", ["ec2", "kubernetes"])
def test_a_provider_without_its_section_s_values_is_an_error(folder: Folder, kind: str) -> None:
    text = changed(("skus:", f"  empty:\n    {kind}:\nskus:"))
    problem = folder.problem(text)
    assert (problem.key, problem.what) == (f"providers.empty.{kind}", "has no value")


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("{org: acme}", "{org: YOUR-ORG}", "github.scopes[0].org", '"YOUR-ORG"'),
        ('"runner-*"', "YOUR-IMAGE", "skus.gpu.image.name", '"YOUR-IMAGE"'),
    ],
)
def test_a_placeholder_with_any_name_is_an_error(
    folder: Folder, old: str, new: str, key: str, value: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.key, problem.what) == (key, f"{value} is a placeholder")
    assert problem.fix == "write your own value"


def test_the_fix_for_another_store_names_what_is_implemented(
    folder: Folder,
) -> None:
    problem = folder.problem(changed(("sqlite:///state.db", "mysql://x/y")))
    assert (problem.what, problem.fix) == (
        "is not a SQLite file",
        "write sqlite:///FILE or postgresql://USER@HOST/DATABASE",
    )


def test_a_file_without_providers_says_to_add_the_missing_one(folder: Folder) -> None:
    ec2 = "{region: us-east-1, subnets: [subnet-0a], security_groups: [sg-0a]}"
    text = changed((f"providers:\n  east:\n    ec2: {ec2}", "providers: null"))
    fixes = {one.key: one.fix for one in folder.problems(text)}
    assert fixes["skus.gpu.on[0].provider"] == "add it to providers"
