"""Each module: its format, its own tests with a mocked provider, and the tables of its README."""

import re
from pathlib import Path

import pytest

from lab.terraform.commands import SOURCE, Terraform
from lab.terraform.parts import Parts
from scripts.module_docs import COMMAND, blocks, written

EXAMPLES = sorted(one.name for one in (SOURCE / "examples").iterdir())
TESTED = {"complete", "several-regions"}
"""The examples with tests, whose providers are mocked: for what no test applies against moto."""

MODULES = sorted(one.name for one in (SOURCE / "modules").iterdir())
TESTS = [SOURCE / "modules" / one for one in MODULES]
TESTS += [SOURCE / "examples" / one for one in sorted(TESTED)]


def test_all_files_have_terraforms_format(parts: Parts, source: Path, tmp_path: Path) -> None:
    status, printed = Terraform(parts, source, tmp_path).run("fmt", "-check", "-recursive", "-diff")
    assert status == 0, printed


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_valid_and_passes_its_tests(
    parts: Parts, source: Path, tmp_path: Path, module: str
) -> None:
    """`terraform test` validates the module before it runs the tests."""
    with Terraform(parts, source / "modules" / module, tmp_path) as terraform:
        terraform.init()
        terraform.succeed("validate", "-no-color")
        assert_all_pass(terraform.succeed("test", "-no-color"))


def assert_all_pass(printed: str) -> None:
    """At least one test has passed, and all have: without a test, Terraform prints "0 passed"."""
    found = re.search(r"^Success! (\d+) passed, 0 failed\.$", printed, re.MULTILINE)
    assert found is not None, printed
    assert int(found[1]) > 0, printed


@pytest.mark.parametrize("folder", TESTS, ids=lambda folder: folder.name)
def test_every_test_of_a_module_has_a_mocked_provider(folder: Path) -> None:
    """With the real provider, a test would look for credentials."""
    tests = sorted((folder / "tests").glob("*.tftest.hcl"))
    assert tests, f"{folder} has no tests"
    assert [one.name for one in tests if "\nmock_provider" not in "\n" + one.read_text()] == []


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_valid_and_passes_its_tests(
    parts: Parts, source: Path, tmp_path: Path, example: str
) -> None:
    with Terraform(parts, source / "examples" / example, tmp_path) as terraform:
        terraform.init()
        terraform.succeed("validate", "-no-color")
        if example in TESTED:
            assert_all_pass(terraform.succeed("test", "-no-color"))


@pytest.mark.parametrize("module", MODULES)
def test_the_tables_of_a_module_are_current(module: str) -> None:
    folder = SOURCE / "modules" / module
    assert (folder / "README.md").read_text() == written(folder), f"run: {COMMAND}"


@pytest.mark.parametrize("module", MODULES)
def test_every_variable_and_output_has_a_description_and_every_variable_a_type(module: str) -> None:
    folder = SOURCE / "modules" / module
    variables = dict(blocks((folder / "variables.tf").read_text()))
    outputs = dict(blocks((folder / "outputs.tf").read_text()))
    assert [
        name for name, has in variables.items() if not {"type", "description"} <= set(has)
    ] == []
    assert [name for name, has in outputs.items() if "description" not in has] == []
    assert all(
        has["description"].endswith('."') for has in (*variables.values(), *outputs.values())
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_variable_is_used(module: str) -> None:
    folder = SOURCE / "modules" / module
    text = "".join(
        file.read_text() for file in folder.glob("*.tf") if file.name not in ("variables.tf",)
    )
    names = dict(blocks((folder / "variables.tf").read_text()))
    assert [name for name in names if f"var.{name}" not in text] == []
