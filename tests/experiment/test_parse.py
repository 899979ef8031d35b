"""Experiment files: what is read, what is refused and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from docs.reference.experiment_file import experiment_reference
from hypothesis import given
from hypothesis import strategies as st
from tests.support.random_experiments import records

from areabench.errors import ConfigError, UserError
from areabench.experiment.experiment import Clients, Experiment, Stop
from areabench.experiment.parse import load_experiment, parse_experiment
from areabench.methods.area import Area
from areabench.methods.criteria import EveryUpdates
from areabench.methods.local import Local
from areabench.methods.s_fedavg import SFedAvg
from areabench.problems.data.mnist import Mnist
from areabench.problems.logistic import Logistic
from areabench.problems.quadratic import Quadratic
from areabench.problems.splits.dirichlet import Dirichlet
from areabench.problems.splits.dirichlet_equal import DirichletEqual
from areabench.problems.splits.iid import Iid
from areabench.settings.keys import Limits, Settings
from areabench.settings.parse import Location, options_of, read_record, records_of, to_toml
from areabench.settings.parts import name_of
from areabench.settings.toml import read_toml
from areabench.timing.exponential import ExponentialDelays
from areabench.timing.rates import ListedRates, NormalRates, UniformRates
from areabench.timing.trace import TraceDelays

QUADRATIC = """
[clients]
count = 2
[method]
name = "area"
step_size = 0.1
[stop]
horizon_s = 1.0
[problem]
name = "quadratic"
"""
LOGISTIC = QUADRATIC.replace("quadratic", "logistic")
TOP = ("name", "seed", "bits", "module_folders")  # keys without a section
ROOT = Path(__file__).parents[2]


def refusal(text: str = QUADRATIC, *overrides: str) -> str:
    """The one line with which an experiment is refused."""
    with pytest.raises(ConfigError) as caught:
        parse_experiment(text, "try.toml", overrides)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600  # it may list all methods
    return message


def read(*overrides: str, text: str = QUADRATIC) -> Experiment:
    """The experiment that the overrides make of a small one."""
    return parse_experiment(text, "try.toml", overrides)


def sections() -> Iterator[tuple[str, Any]]:
    """Every section with every record it may hold."""
    hints = get_type_hints(Experiment)
    for item in fields(Experiment):
        yield from ((item.name, record) for record in records_of(item, hints[item.name]))


def keys() -> Iterator[tuple[str, Any, str, Any, Limits]]:
    """Every key below a section: section, record, name, type, limits."""
    for section, record in sections():
        hints = get_type_hints(record)
        for item in fields(record):
            if item.name != "name":
                yield section, record, item.name, options_of(hints[item.name])[0], item.metadata["limits"]


def variant(section: str, record: Any) -> list[str]:
    """The overrides that choose a record for a section, with its required keys."""
    chosen = [f"{section}.name={item.default}" for item in fields(record) if item.name == "name"]
    return chosen + [f"{section}.{key}" for key in required(record)]


def required(record: Any) -> list[str]:
    """key=value for the keys that a record requires."""
    words = {"module": "a:b", "file": "trace.csv", "set": "iris"}
    usual: dict[Any, str] = {int: "2", float: "1", tuple: "[1.0, 2.0]"}
    hints = get_type_hints(record)
    missing = [item.name for item in fields(record) if item.default is MISSING]
    return [f"{name}={words.get(name) or usual[get_origin(hints[name]) or hints[name]]}" for name in missing]


def needed(record: Any) -> list[str]:
    """The overrides of other sections that a record needs."""
    given = {
        "clients.work=ticks": ["clients.tick_s=0.1"],
        "aggregation.name=period": ["aggregation.period_s=1"],
    }
    chosen = [f"{need.key}={need.allowed[0]}" for need in getattr(record, "needs", ())]
    return [override for one in chosen for override in (one, *given.get(one, ()))]


def labels(case: tuple[Any, ...]) -> str:
    return f"{case[0]}-{case[1].__name__}" + (f"-{case[2]}" if len(case) > 2 else "")


def base(section: str) -> str:
    """An experiment that may have the section."""
    return LOGISTIC if section in ("data", "split") else QUADRATIC


SECTIONS = list(sections())
KEYS = list(keys())
NUMBERS = [case for case in KEYS if case[3] in (int, float)]
VALUE_ERRORS = {
    int: ["word", "true", "1.5", "{a=1}", "[1]", "1979-05-27", "9223372036854775808", "-1"],
    float: ["word", "false", "{a=1}", "[1.0]", "1979-05-27", "nan", "inf", "-inf", "1" + "0" * 400, "-1"],
    bool: ["1", "word", "{a=1}", "[true]", '"true"'],
    str: ["1", "true", "{a=1}", '["a"]', "", '"two\\nlines"', '"a\\u0000b"'],
    tuple: ["1", "word", "{a=1}", '["a"]', "[true]", "[[1.0]]", "[nan]", "[0.0]"],
    Literal: ["1", "true", "{a=1}", '["grid"]', "no-such-choice"],
    Settings: ["1", "word", "[1]", "{a={b=1}}", "{a=[[1]]}", "{a=1979-05-27}", "{a=nan}", '{"a b"=1}'],
}


# ---------------------------------------------------------------------------------------------------- reading


def test_defaults_of_a_quadratic() -> None:
    experiment = read()
    assert experiment == Experiment(
        clients=Clients(count=2), method=Area(step_size=0.1), stop=Stop(horizon_s=1.0), problem=Quadratic()
    )
    assert (experiment.name, experiment.seed) == ("experiment", 0)
    assert (experiment.rates, experiment.delays) == (UniformRates(rate=10.0), ExponentialDelays())
    assert experiment.aggregation == EveryUpdates(updates=4)


def test_logistic_has_mnist_and_a_dirichlet_split_by_default() -> None:
    experiment = read(text=LOGISTIC)
    assert (experiment.problem, experiment.data, experiment.split) == (Logistic(), Mnist(), Dirichlet())
    told = read("data.name=digits", "split.concentration=2", "split.name=dirichlet-equal", text=LOGISTIC)
    assert told.data is not None
    assert told.split is not None
    assert (told.data.name, told.split.name) == ("digits", "dirichlet-equal")


def test_a_quadratic_has_no_data() -> None:
    assert (read().data, read().split) == (None, None)


def test_overrides_of_every_kind() -> None:
    experiment = read(
        "name=other", "seed = 7", "stop.horizon_s=2", "method.name='s-fedavg'", "method.clients_per_round=2",
        "rates.name=list", "rates.values=[1, 2.5]", "schedule.name=1/k", "record.snapshots=none",
    )  # fmt: skip
    assert (experiment.name, experiment.seed, experiment.stop.horizon_s) == ("other", 7, 2.0)
    assert isinstance(experiment.stop.horizon_s, float)
    assert experiment.method == SFedAvg(step_size=0.1, clients_per_round=2)
    assert experiment.rates == ListedRates(values=(1.0, 2.5))
    assert (experiment.schedule.name, experiment.record.snapshots) == ("1/k", "none")


def test_the_last_override_counts() -> None:
    assert read("seed=1", "seed=2").seed == 2


def test_an_override_may_make_a_section() -> None:
    assert read("rates.name=normal").rates == NormalRates()


TRACE = "client,delay_s\n" + "".join(f"{client},0.5\n" for client in range(read().clients.count))


def test_a_trace_file_lies_beside_the_experiment_file(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(QUADRATIC + '[delays]\nname = "trace"\nfile = "in/delays.csv"\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"in/delays\.csv: No such file or directory"):
        load_experiment(path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "delays.csv").write_text(TRACE)
    experiment = load_experiment(path)
    assert experiment.delays == TraceDelays(file=str(tmp_path / "in" / "delays.csv"))
    assert parse_experiment(to_toml(experiment)) == experiment


def test_an_absolute_trace_path_stays(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(QUADRATIC, encoding="utf-8")
    (tmp_path / "away.csv").write_text(TRACE)
    experiment = load_experiment(path, ["delays.name=trace", f"delays.file={tmp_path / 'away.csv'}"])
    assert experiment.delays == TraceDelays(file=str(tmp_path / "away.csv"))


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(QUADRATIC, encoding="utf-8-sig")
    assert load_experiment(path) == read()


@pytest.mark.parametrize("case", SECTIONS, ids=labels)
def test_every_variant_can_be_chosen(case: tuple[str, Any]) -> None:
    section, record = case
    others = ["clients.count=4"] if section == "method" else []  # as many as a round draws
    if section == "privacy":
        others = ["privacy.bits=64", "aggregation.updates=2"]
    experiment = read(*others, *needed(record), *variant(section, record), text=base(section))
    assert isinstance(getattr(experiment, section), record)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("case", SECTIONS, ids=labels)
def test_unknown_key_in_every_record(case: tuple[str, Any]) -> None:
    section, record = case
    message = refusal(base(section), *variant(section, record), f"{section}.colour=1")
    assert message.startswith(f"try.toml: {section}.colour: unknown key 'colour'; allowed: ")
    assert all(item.name in message for item in fields(record))


@pytest.mark.parametrize("case", KEYS, ids=labels)
def test_misspelt_key_names_the_nearest(case: tuple[str, Any, str, Any, Limits]) -> None:
    section, record, name, _, _ = case
    overrides = [*variant(section, record), f"{section}.{name}x=1"]
    assert f"try.toml: {section}.{name}x: unknown key '{name}x'; did you mean '{name}'?" in refusal(
        base(section), *overrides
    )


@pytest.mark.parametrize("case", KEYS, ids=labels)
def test_wrong_value_of_every_key(case: tuple[str, Any, str, Any, Limits]) -> None:
    section, record, name, kind, limits = case
    for value in VALUE_ERRORS[get_origin(kind) or kind]:
        message = refusal(base(section), *variant(section, record), f"{section}.{name}={value}")
        assert message.startswith(f"try.toml: {section}.{name}")
        assert kind not in (int, float) or limits.describe() in message
        assert "allowed" in message or " is not " in message or "write a table" in message or "cannot be" in message


@pytest.mark.parametrize("case", NUMBERS, ids=labels)
def test_limits_of_every_number(case: tuple[str, Any, str, Any, Limits]) -> None:
    section, record, name, kind, limits = case
    outward = [(limits.minimum, -1), (limits.above, 0), (limits.maximum, 1), (limits.below, 0)]
    for bound, distance in outward:
        if bound is not None:
            value = kind(bound + distance)
            message = refusal(base(section), *variant(section, record), f"{section}.{name}={value}")
            assert f"{section}.{name}: {value!r} is out of range; allowed is a" in message
            assert limits.describe() in message


def test_limits_are_named_exactly() -> None:
    assert refusal(QUADRATIC, "seed=4294967296").endswith(
        "allowed is a whole number >= 0 and < 4294967296 (given by --set)"
    )
    assert refusal(QUADRATIC, "stop.target_accuracy=101").endswith(
        "allowed is a number > 0 and <= 100 % (given by --set)"
    )
    assert refusal(QUADRATIC, "rates.rate=0", "rates.name=uniform").endswith(
        "allowed is a number > 0 1/s (given by --set)"
    )
    assert read("seed=4294967295").seed == 2**32 - 1


@pytest.mark.parametrize("section", [item.name for item in fields(Experiment) if item.name not in TOP])
@pytest.mark.parametrize("value", ["1", "word", "[{count=2}]", "true"])
def test_a_value_is_not_a_section(section: str, value: str) -> None:
    message = refusal(QUADRATIC, f"{section}={value}")
    assert message.startswith(f"try.toml: {section}: ")
    alone = section in ("clients", "stop", "record", "clock", "faults", "local", "privacy")  # these have no variants
    assert f"is a value; write {'it as ' if alone else ''}a section" in message


@pytest.mark.parametrize("section", ["clients", "method", "stop", "problem"])
def test_missing_section(section: str) -> None:
    text = "\n".join(f"[{part}" for part in QUADRATIC.split("\n[")[1:] if not part.startswith(section))
    assert f"try.toml: {section}: is missing; add a section [{section}]" in refusal(text)


@pytest.mark.parametrize("section", ["method", "problem", "data", "split"])
def test_a_section_with_variants_and_no_default_needs_a_name(section: str) -> None:
    allowed = ", ".join(sorted(name_of(record) for where, record in SECTIONS if where == section))
    assert refusal(without_name(section)) == f"try.toml: {section}: has no `name`; choose one of {allowed}"


@pytest.mark.parametrize("section", ["rates", "delays", "schedule", "aggregation"])
def test_a_section_without_a_name_is_of_the_default_variant(section: str) -> None:
    assert parse_experiment(without_name(section)) == parse_experiment(QUADRATIC)


def test_the_keys_of_the_default_variant_need_no_name() -> None:
    assert parse_experiment(QUADRATIC + "[aggregation]\nupdates = 1").aggregation == EveryUpdates(updates=1)


def test_keys_of_another_variant_need_its_name() -> None:
    told = "try.toml: aggregation: has no `name`; choose one of period"
    assert refusal(QUADRATIC + "[aggregation]\nperiod_s = 1.0") == told
    told = "try.toml: aggregation: has no `name`; choose one of period, poisson, updates"
    assert refusal(QUADRATIC + "[aggregation]\nevery = 1.0") == told


def without_name(section: str) -> str:
    """A whole experiment in which one section lacks its name."""
    if section in ("method", "problem"):
        name = "area" if section == "method" else "quadratic"
        return QUADRATIC.replace(f'name = "{name}"\n', "")
    return f"{base(section)}[{section}]\n"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("method.name=area", "method.step_size"),
        ("aggregation.name=period", "aggregation.period_s"),
        ("aggregation.name=poisson", "aggregation.rate"),
        ("rates.name=list", "rates.values"),
        ("delays.name=trace", "delays.file"),
        ("problem.name=torch", "problem.module"),
    ],
)
def test_missing_required_key(override: str, key: str) -> None:
    message = refusal(QUADRATIC.replace("step_size = 0.1\n", "") if "step_size" in key else QUADRATIC, override)
    assert message.startswith(f"try.toml: {key}: is missing (")
    assert message.endswith("; add it")


def test_missing_count() -> None:
    assert refusal(QUADRATIC.replace("count = 2", "")) == (
        "try.toml: clients.count: is missing (number of clients n); add it"
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "method.name=areo",
            "method.name: unknown value 'areo'; did you mean 'area'? allowed: ace, aced, afa-cd, afa-cs, area, as-fed",
        ),
        ("method.name=7", "method.name: unknown value 7; allowed: ace, aced, afa-cd, afa-cs, area, as-fedavg"),
        ("problem.name=logistics", "did you mean 'logistic'?"),
        ("schedule.name=1/sqrt(k", "did you mean '1/sqrt(k)'?"),
        ("schedule.name=1/sqrt(tt)", "did you mean '1/sqrt(t)'?"),
        (
            "record.snapshots=gird",
            "record.snapshots: unknown value 'gird'; did you mean 'grid'? allowed: aggregations,",
        ),
        ("clients.count=2 clients", "clients.count: '2 clients' is not a whole number >= 1"),
        ("seeds=1", "try.toml: seeds: unknown key or section 'seeds'; did you mean 'seed'?"),
        ("metod.name=area", "try.toml: metod: unknown key or section 'metod'; did you mean 'method'?"),
        ("rates.values=[1, 0]", "rates.values.1: 0.0 is out of range; allowed is a number > 0 1/s"),
    ],
)
def test_words_of_refusals(override: str, words: str) -> None:
    rates = ["rates.name=list"] if "rates" in override else []
    assert words in refusal(QUADRATIC, *rates, override)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed", "--set seed: write it as section.key=value"),
        ("=1", "--set =1: write it as section.key=value"),
        ("method.=1", "--set method.=1: write it as section.key=value"),
        (".seed=1", "--set .seed=1: write it as section.key=value"),
        ("", "--set : write it as section.key=value"),
        ("clients.count.deep=1", "--set clients.count.deep=1: 'count' is a value, not a section; write count=..."),
    ],
)
def test_bad_override(override: str, words: str) -> None:
    assert words in refusal(QUADRATIC, override)


@pytest.mark.parametrize("change", ["split.name=iid", " split . name = iid"])
def test_an_override_of_a_name_drops_the_keys_of_the_variant_before(change: str) -> None:
    text = base("split") + '[split]\nname = "dirichlet"\nconcentration = 0.3\nminimum = 2\n'
    assert parse_experiment(text, overrides=[change]).split == Iid()
    changed = parse_experiment(text, overrides=["split.name=dirichlet-equal"]).split
    assert changed == DirichletEqual(concentration=0.3)  # a key that both have stays


def test_an_override_of_a_name_keeps_keys_that_are_unknown_or_overridden_too() -> None:
    text = base("split") + '[split]\nname = "dirichlet"\n'
    for overrides in (["split.minimum=2", "split.name=iid"], ["split.name=iid", "split.minimum=2"]):
        assert "split.minimum: unknown key 'minimum'" in refusal(text, *overrides)
    assert "split.minimun: unknown key 'minimun'" in refusal(text + "minimun = 2\n", "split.name=iid")


def test_an_override_of_a_name_by_one_that_does_not_exist() -> None:
    text = base("split") + '[split]\nname = "dirichlet"\nminimum = 2\n'
    assert "split.name: unknown value 'idd'" in refusal(text, "split.name=idd")


def test_an_override_is_exactly_one_value() -> None:
    assert "'1\\nname = \"sly\"' is not a whole number" in refusal(QUADRATIC, 'seed=1\nname = "sly"')


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["stop.iterations=5"], None),
        (["record.snapshots=none", "stop.target_loss=1"], 'record.snapshots: "none" leaves nothing to check'),
        (["stop.target_accuracy=90"], 'stop.target_accuracy: problem "quadratic" has no accuracy; use stop'),
        (
            ["record.interval_s=1e-3", "stop.horizon_s=1001"],
            "record.interval_s: 0.001 s over a horizon of 1001.0 s is more than 1,000",
        ),
        (["record.interval_s=1e-3", "stop.horizon_s=1000"], None),
        (["record.interval_s=1e-3", "stop.horizon_s=1001", "record.snapshots=aggregations"], None),
        (["rates.name=list", "rates.values=[1.0]"], "rates.values: 1 rate for clients.count = 2; give one"),
        (["rates.name=list", "rates.values=[]"], "rates.values: 0 rates for clients.count = 2"),
        (["method.name=area", "schedule.name=1/k"], None),
        (["clients.work=ticks", "clients.tick_s=0.1"], None),
        (["clients.work=ticks"], 'clients.tick_s: is missing with clients.work = "ticks"; give the duration of a loc'),
        (
            ["clients.work=uniform", "clients.tick_s=0.1"],
            'clients.tick_s: 0.1 s is given with clients.work = "uniform"; use clients.work = "ticks"',
        ),
        (
            ["clients.work=ticks", "clients.tick_s=0.1", "delays.name=fixed", "delays.per=step"],
            'delays.per: "step" makes a round as long as its local steps, clients.work = "ticks" as many steps',
        ),
        (["clients.work=uniform", "delays.name=fixed", "delays.per=step"], None),
        (["local.prox=0.1", "local.momentum=0.9", "local.control_variates=true"], None),
        (["data.name=mnist"], 'data: problem "quadratic" uses no data; remove the section [data]'),
        (["split.name=iid"], 'split: problem "quadratic" uses no data; remove the section [split]'),
        (["problem.curvature_max=0.5"], "problem.curvature_max: 0.5 is below curvature_min = 1.0; swap them"),
        (["problem.curvature_max=1"], None),
        (["problem.zeta=2"], None),
        (["problem.zeta=0", "clients.count=1"], None),
        (["problem.zeta=2", "clients.count=1"], "problem.zeta: 2.0 cannot be reached with clients.count = 1 and"),
        (["problem.zeta=2", "problem.heterogeneity=0"], "problem.zeta: 2.0 cannot be reached"),
        (["problem.name=robust", "problem.samples=5", "problem.dimension=10"], None),
        (
            ["problem.name=robust", "problem.samples=5", "problem.dimension=11"],
            "problem.samples: 5 for each of 2 clients are fewer in all than problem.dimension = 11, so the minimiser",
        ),
        (["problem.name=robust", "data.name=digits"], 'data: problem "robust" uses no data; remove the section [data]'),
        (["problem.name=median", "split.name=iid"], 'split: problem "median" uses no data; remove the section [split]'),
        (["problem.name=median", "stop.target_accuracy=90"], 'stop.target_accuracy: problem "median" has no'),
        (["problem.name=hinge", "stop.target_accuracy=90"], None),
        (["problem.name=logistic", "problem.minimiser=true"], None),
        (
            ["problem.name=logistic", "problem.minimiser=true", "problem.regularisation=0"],
            "problem.minimiser: there may be none where problem.regularisation = 0; give a regularisation above 0",
        ),
    ],
)  # fmt: skip
def test_combinations(overrides: list[str], words: str | None) -> None:
    if words is None:
        read(*overrides)
    else:
        assert f"try.toml: {words}" in refusal(QUADRATIC, *overrides)


def test_a_target_alone_does_not_end_a_run() -> None:
    message = refusal(QUADRATIC.replace("horizon_s = 1.0", "target_loss = 1.0"))
    assert message.startswith("try.toml: stop: has neither horizon_s nor iterations; add one")


@pytest.mark.parametrize("name", ["a/b", "..", "a b", "é", "a" * 101, "../../x", "a\\b", "-", "ok.1_b-C", "a" * 100])
def test_names_are_safe_in_file_names(name: str) -> None:
    text = f"name = '{name}'\n{QUADRATIC}"
    if name in ("..", "-", "ok.1_b-C", "a" * 100):  # dots are harmless: the file's name continues
        assert parse_experiment(text).name == name
    else:
        message = refusal(text)
        assert message.startswith("try.toml: name: '")
        assert message.endswith("use 1 to 100 letters, digits, '.', '_' and '-'")


@pytest.mark.parametrize("override", ["name=", 'name="a\\u0000b"', 'name="a\\nb"', "name=\udcff"])
def test_empty_names_and_control_characters(override: str) -> None:
    assert "is empty or has control characters; allowed is a line of text" in refusal(QUADRATIC, override)


# ---------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed = ", "is not valid TOML: Invalid value (at "),
        ("seed = 1\nseed = 2", "is not valid TOML: Cannot overwrite a value (at "),
        (QUADRATIC + "[method]", "is not valid TOML: Cannot declare ('method',) twice"),
        ("seed = " + "1" * 5000, "is not valid TOML: Exceeds the limit (4300"),
        ("seed = " + "[" * 50_000, "is not valid TOML: "),
        ("seed = \0", "is not valid TOML: Invalid value"),
        ('"a\\nb" = 1\n' + QUADRATIC, "try.toml: a\\nb: unknown key or section 'a\\nb'"),
        ("seed = 0x" + "f" * 5000 + QUADRATIC, "seed: a number of thousands of digits is out of range; allowed is"),
        ("seed = [0x" + "f" * 5000 + "]" + QUADRATIC, "seed: a number of thousands of digits is not a whole number"),
        ("name = '" + "x" * 5000 + "'" + QUADRATIC, "name: 'xxxxx"),
        ("", "try.toml: clients: is missing; add a section [clients]"),
    ],
    ids=range(11),
)
def test_texts_that_are_refused(text: str, words: str) -> None:
    assert words in refusal(text)


def test_huge_numbers_where_a_float_is_meant() -> None:
    words = "method.step_size: a number of thousands of digits is too large; allowed is a number > 0 below 1.8e308"
    assert words in refusal(QUADRATIC, "method.step_size=0x" + "f" * 5000)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.toml", "cannot be read: No such file or directory; give the path of an experiment file"),
        ("", "cannot be read: Is a directory; give the path of an experiment file"),
        ("latin.toml/try.toml", "cannot be read: Not a directory; give the path of an experiment file"),
        ("latin.toml", "is not UTF-8 at byte 8; save it as UTF-8 text"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'\n")
    with pytest.raises(ConfigError) as caught:
        load_experiment(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {words}"


# ---------------------------------------------------------------------------------------------------- round trip

texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
names = st.text("abcXYZ019._-", min_size=1, max_size=100)
plain = st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | texts


def any_value(_name: str, kind: Any, limits: Limits) -> st.SearchStrategy[Any]:
    """Values that one key takes."""
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        return st.just((1, 2) if get_args(kind)[0] is int else (1.0, 2.5))
    if kind is Settings:
        return st.dictionaries(st.from_regex("[a-z_]{1,9}", fullmatch=True), plain | st.tuples(plain, plain)).map(
            Settings
        )
    if kind is str:
        return texts
    if kind is bool:
        return st.booleans()
    if kind is int:
        lowest = int(limits.minimum or 0)
        highest = 2**63 - 1 if limits.maximum is limits.below else int(limits.maximum or (limits.below or 0) - 1)
        return st.integers(lowest, highest)
    lowest_number = limits.minimum if limits.above is None else limits.above
    highest_number = limits.maximum if limits.below is None else limits.below
    return st.floats(
        lowest_number, highest_number, exclude_min=limits.above is not None, exclude_max=limits.below is not None,
        allow_nan=False, allow_infinity=False,
    )  # fmt: skip


def experiments() -> st.SearchStrategy[Experiment]:
    """Experiments of all variants, with settings that need not fit together."""
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for section, record in sections():
        found = records(record, any_value)
        parts[section] = parts[section] | found if section in parts else found
    return st.builds(Experiment, **parts, name=names, seed=st.integers(0, 2**32 - 1))


@given(experiments())
def test_what_is_written_reads_the_same(experiment: Experiment) -> None:
    table = read_toml(to_toml(experiment), "try.toml")
    assert read_record(Experiment, table, Location("try.toml")) == experiment


@pytest.mark.parametrize("text", [QUADRATIC, LOGISTIC])
def test_a_checked_experiment_is_written_with_its_defaults(text: str) -> None:
    experiment = read(text=text)
    assert parse_experiment(to_toml(experiment)) == experiment


def test_a_key_that_was_added_later_is_not_written_at_its_default() -> None:
    """So that experiments of before keep their text, and their run files their names."""
    trained = Experiment(
        clients=Clients(count=2), method=Area(step_size=0.1), stop=Stop(horizon_s=1.0), problem=Quadratic()
    )
    changed = replace(
        trained,
        clients=Clients(count=2, work="uniform"),
        delays=ExponentialDelays(per="step"),
        local=Local(prox=0.5),
    )
    zero = replace(trained, method=Area(step_size=0.1, first_message="zero"))
    added = ('work = "uniform"\n', 'per = "step"\n', "[local]\nprox = 0.5\n", 'first_message = "zero"\n')
    assert not any(text.split()[0] in to_toml(trained).split() for text in added)
    assert all(text in to_toml(changed) + to_toml(zero) for text in added)
    assert parse_experiment(to_toml(changed)) == changed
    assert parse_experiment(to_toml(zero)) == zero


@given(texts)
def test_any_text_survives_as_a_value(text: str) -> None:
    experiment = replace(read(), delays=TraceDelays(file=text))
    assert parse_experiment(to_toml(experiment)).delays == TraceDelays(file=text)


@given(st.text(max_size=30))
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    refusal(text)


# ---------------------------------------------------------------------------------------------------- documentation


def test_every_key_is_documented() -> None:
    assert all(limits.doc for *_, limits in KEYS)
    assert all(record.__doc__ for _, record in sections())
    assert all(item.metadata["limits"].doc for item in fields(Experiment) if item.name in TOP)


def test_the_reference_page_is_current() -> None:
    page = (ROOT / "docs" / "experiment-file.md").read_text(encoding="utf-8")
    assert page == experiment_reference(), "stale: run make docs-reference"


def test_the_example_of_the_reference_page_is_an_experiment() -> None:
    example = experiment_reference().partition("```toml\n")[2].partition("```")[0]
    assert parse_experiment(example).name == "first"
