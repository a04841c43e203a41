"""The plan of a sweep is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import PLAN

from fpet.errors import UnsupportedError
from fpet.header import Method
from fpet.sweeps.plan import load_plan
from fpet.training.recipe import Recipe

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_plan_fills_in_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('data = ["digits"]\nseeds = [0, 1]\n[[method]]\nname = "a"\n')
    [method] = load_plan(path).methods
    assert (method.adapter, method.reducer, method.recipe) == (Method("adaptformer"), Method("bdm"), Recipe())


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("data =", "date =", "unknown 'date'"),
        ('["digits", "nowhere"]', "[]", "data is empty"),
        ('["digits", "nowhere"]', '["digits", "digits"]', "data has 'digits' twice"),
        ('"nowhere"', "7", 'data is not a list of names, folders and tables, such as data = ["digits"'),
        ('"nowhere"', "{ shots = 4 }", "data needs the argument 'folder'"),
        ('"nowhere"', '{ folder = "lists", shot = 4 }', "data has no argument 'shot'"),
        ('"nowhere"', '{ folder = "own", split_seed = -1 }', "split_seed = -1 is not between"),
        ("[3]", "[true]", "seeds is not a list of whole numbers, such as seeds = [0, 1]"),
        ("[3]", "0", "seeds is not a list of whole numbers, such as seeds = [0, 1]"),
        ("[3]", "[-1]", "seed = -1 should not be below 0"),
        ("[3]", f"[{10**23}]", f"seed = {10**23} should be below 2**63"),
        ('"Linear"', '"LoRA + FPET"', "method has 'LoRA + FPET' twice"),
        ('"Linear"', '" "', "name = ' ' should be text, without line breaks and other control characters"),
        ('"Linear"', '"a\\nb"', "name = 'a\\nb' should be text"),
        ('name = "Linear"', "", "needs the argument 'name'"),
        ("head_bits", "bits", "no argument 'bits'"),
        ("adapter_arguments", "adapter_argument", "search_scale, adapter_arguments, reducer_arguments, recipe"),
        ("head_bits = 8", 'head_bits = "8"', "head_bits = '8' is not of type int"),
        ("{ dim = 4 }", "4", "adapter_arguments = 4 is not a table"),
        ("{ dim = 4 }", "{ dim = 2020-01-01 }", "FPET: adapter_arguments: dim = 2020-01-01 is a date or time"),
        ("{ block = 0 }", "{ block = [07:30:00] }", "is a date or time, which no method takes"),
        ("lr = 0.01", "rate = 0.01", "recipe has no argument 'rate'"),
        ("lr = 0.01", "lr = -0.01", "Linear: lr = -0.01 should be above 0"),
        ("lr = 0.01", f"lr = {10**400}", "is not of type float"),
        ("lr = 0.01", f"validate_every = {10**400}", "should be below 2**63"),
        ("lr = 0.01", "seed = 1", "a recipe has no seed here"),
        ("data =", "data", "not a TOML file"),
    ],
)
def test_a_wrong_plan_is_refused(right: str, wrong: str, message: str, tmp_path: Path) -> None:
    assert right in PLAN
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.replace(right, wrong, 1))
    with pytest.raises(UnsupportedError) as refused:
        load_plan(path)
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)


def test_a_method_in_one_pair_of_brackets_is_told_the_right_form(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('data = ["digits"]\nseeds = [0]\n[method]\nname = "a"\n')
    with pytest.raises(UnsupportedError, match=r"method is not a list of tables: write each under \[\[method\]\]"):
        load_plan(path)


@pytest.mark.parametrize(("recipe", "warm_up"), [("", 10), ("epochs = 30", 3), ("epochs = 30\nwarmup_epochs = 10", 10)])
def test_a_warm_up_goes_with_the_epochs_unless_it_is_given(recipe: str, warm_up: int, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(f'data = ["digits"]\nseeds = [0]\n[recipe]\n{recipe}\n[[method]]\nname = "one"\n')
    (method,) = load_plan(path).methods
    assert method.recipe.warmup == warm_up
