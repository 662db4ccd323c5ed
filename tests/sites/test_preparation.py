"""What the people of a site do before it takes part, by the commands that they use."""

import csv
from pathlib import Path

import pytest

from commands import Isthmus
from golden import check
from isthmus import Experiment
from isthmus.run.build import read_federation
from isthmus_sites.folders import SiteFolder, write_table
from isthmus_sites.preparation import find_data
from isthmus_sites.rehearsal import plan_study, write_client_data
from isthmus_sites.site import open_site

TABLE = ("--set", "label=outcome", "--set", "client=hospital")


def write_patients(path: Path) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["hospital", "age", "ward", "outcome"])
        for row in range(150):
            ward = ("north", "south", "west")[row % 3]
            outcome = "yes" if (row * 7) % 11 > 4 else "no"
            writer.writerow(["abc"[row // 50], 20 + row % 61, ward, outcome])
    return path


@pytest.fixture
def study(isthmus: Isthmus, tmp_path: Path) -> Path:
    """An experiment that two sites are asked to agree to, and the folder of one of them."""
    write_patients(tmp_path / "patients.csv")
    said = isthmus(
        *("data", "schema", "--data", "patients.csv", *TABLE),
        *("--sites", "ulm,bonn", "--out", "study.toml"),
    )
    assert said.code == 0, said.err
    text = (tmp_path / "study.toml").read_text()
    (tmp_path / "study.toml").write_text(
        'method = "fedsimsup"\nrounds = 3\nepochs = 1\nselection = "fixed"\n' + text
    )
    (tmp_path / "bonn").mkdir()
    write_table(SiteFolder(tmp_path / "bonn").settings, {"name": "bonn"})
    return tmp_path / "study.toml"


def test_a_schema_has_columns_categories_and_scales_and_no_row(study: Path) -> None:
    text = study.read_text()
    assert 'category = "north"' in text
    assert 'name = "age"' in text
    assert 'labels = [\n    "no",\n    "yes",\n]' in text
    assert "hospital" not in text


def test_one_sites_table_need_not_say_whose_its_rows_are(isthmus: Isthmus, study: Path) -> None:
    said = isthmus("data", "schema", "--data", "patients.csv", "--set", "label=outcome")
    assert said.code == 0, said.err
    assert 'name = "hospital"' in said.out  # here it is a column as any other


def test_a_site_looks_before_it_agrees(isthmus: Isthmus, study: Path) -> None:
    place = ("--folder", "bonn")
    said = isthmus(
        "join", "check", "study.toml", "--data", "patients.csv", "--read", "label=outcome", *place
    )
    assert said.code == 0, said.err
    check(said.out)
    said = isthmus("join", "agree", "study.toml", "--disclose", "census", *place)
    assert said.code == 0, said.err
    check(said.out)
    said = isthmus("join", "status", *place)
    assert "calls: none" in said.out
    site = open_site(Path("bonn"))
    assert site.setting.federation.sizes(1) == (108, 12, 30)
    site.close()


def test_a_site_begins_anew_and_keeps_what_it_had(isthmus: Isthmus, study: Path) -> None:
    place = ("--folder", "bonn")
    isthmus("join", "check", "--data", "patients.csv", "--read", "label=outcome", *place)
    agree = ("join", "agree", "study.toml", *place)
    assert isthmus(*agree).code == 0
    check(isthmus(*agree, "--reset").mistake)
    site = open_site(Path("bonn"))
    check(isthmus(*agree, "--reset").mistake)
    site.close()
    said = isthmus(*agree, "--reset")
    assert said.code == 0, said.err
    (aside,) = (path for path in Path("bonn/state").iterdir() if path.is_dir())
    assert [file.suffix for file in aside.iterdir()] == [".lmdb"]
    open_site(Path("bonn")).close()


def test_what_a_site_cannot_agree_to_is_one_line(isthmus: Isthmus, study: Path) -> None:
    place = ("--folder", "bonn")
    check(isthmus("join", "agree", "study.toml", *place).mistake)
    check(isthmus("join", "check", "study.toml", "--data", "nowhere.csv", *place).mistake)
    isthmus("join", "check", "--data", "patients.csv", "--read", "label=outcome", *place)
    check(isthmus("join", "agree", "study.toml", "--disclose", "local", *place).mistake)
    check(isthmus("join", "agree", "study.toml", "--minimum-examples", "500", *place).mistake)
    text = study.read_text()
    study.write_text(text.replace('"bonn"', '"bern"'))
    check(isthmus("join", "agree", "study.toml", *place).mistake)
    study.write_text(text.replace('name = "age"', 'name = "weight"'))
    check(isthmus("join", "agree", "study.toml", *place).mistake)
    study.write_text("noise = 'symmetric'\n" + text)
    check(isthmus("join", "agree", "study.toml", *place).mistake)


def test_data_at_sites_are_read_by_nobody_else(isthmus: Isthmus, study: Path) -> None:
    check(isthmus("run", "study.toml").mistake)


def test_the_latest_data_come_first_and_others_by_name(isthmus: Isthmus, study: Path) -> None:
    write_patients(Path("later.csv"))
    for file in ("patients.csv", "later.csv"):
        isthmus("join", "check", "--data", file, "--folder", "bonn")
    site = SiteFolder(Path("bonn"))
    assert find_data(site).name == "later"
    assert find_data(site, "patients").path == str(Path("patients.csv").absolute())


@pytest.mark.parametrize("kind", ["table", "digits"])
def test_sites_divide_their_data_as_the_simulation_does(kind: str, tmp_path: Path) -> None:
    """Each reads a file of its own, and knows only what the experiment says."""
    from isthmus_sites.federations import read_client

    path = str(write_patients(tmp_path / "patients.csv"))
    table = {"name": "table", "path": path, "label": "outcome", "client": "hospital"}
    given = {"data": table} if kind == "table" else {"data": "digits", "clients": 3}
    experiment = Experiment(method="fedavg", rounds=2, seed=5, clients_per_round=3, **given)
    data = read_federation(experiment, tmp_path)
    study = plan_study(experiment, data)
    for i in range(3):
        file, options = write_client_data(experiment, data, i, tmp_path)
        mine = read_client(study, i, Path(file), {"name": "table", **options})
        for part in ("train", "validation", "test"):
            assert (mine.split(i, part).x == data.split(i, part).x).all()
            assert (mine.split(i, part).y == data.split(i, part).y).all()


def test_sites_are_named_after_clients_where_that_will_do() -> None:
    from isthmus_sites.rehearsal import name_sites
    from small import federation

    data = federation((9, 9))
    assert name_sites(data) == ["site-1", "site-2"]
    for names, wanted in (
        (("Ulm (Süd)", "Bonn"), ["ulm-s-d", "bonn"]),
        (("Server", "Bonn"), ["site-1", "site-2"]),
        (("a", "A"), ["site-1", "site-2"]),
    ):
        data.names = names
        assert name_sites(data) == wanted
