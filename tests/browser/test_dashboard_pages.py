"""The pages of the dashboard beside the overview, in a real browser: a program, compare, the box."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from test_dashboard import drawn, ranges, says, serious


def box_of(page: Any, name: str) -> Any:
    place = page.locator(f".plot[data-game='{name}']")
    place.scroll_into_view_if_needed()
    place.locator("canvas").wait_for()
    page.wait_for_function(  # an empty chart has 0 to 1
        "async (name) => (await import(document.querySelector('script[type=module]').src)).charts.of(name)?.range[1] > 1",
        arg=name,
    )
    return place.bounding_box()


def test_a_program_has_a_page_of_its_own(opened: Any, shot: Any) -> None:
    page = opened("/program/Pong-s1?seeds=yes&series=mean_return,loss").page
    drawn(page)
    says(page, "page", r"Pong-s1 is [\w ]+(: step [\d.]+ M of 1 G|, [\d.]+ M steps made)")
    for name in ("Pong-s1", "Pong-s2", "Pong-s3"):
        assert page.locator(".values a", has_text=name).count() == 2, "every seed by name, below both charts"
    says(page, "page", r"level medium \(5 \u00d7 64\) \u2192 heavy \(8 \u00d7 128\)")
    says(page, "page", "stall \\(hang\\)")
    says(page, "page", "stop_grace_s 20.0 -> 30.0")
    says(page, "page", r"num_envs \d+ level \w+, in force")
    says(page, "page", "In 2 backups")
    says(page, "page", "replay_size 100000")
    log = page.get_by_role("region", name="the end of stdout")
    log.get_by_text("Pong-s1 line 40").wait_for()
    assert log.evaluate("(log) => log.scrollHeight - log.scrollTop - log.clientHeight") < 2, "opened at its end"
    page.get_by_label("Add a figure").select_option("success_rate")
    page.get_by_label("Smoothing").select_option("0.9")
    page.get_by_label("log scale").check()
    box_of(page, "success_rate")
    assert re.search(r"program/Pong-s1\?.*series=mean_return,loss,success_rate.*smooth=0.9.*log=yes", page.url)
    shot(page, "program")


def test_a_setting_that_waits_for_an_update_shows_the_value_of_the_file_and_the_command(opened: Any, served: Any) -> None:
    application, _ = served
    text = application.host.config_file.read_text()
    application.within(application.host.configure, text.replace("lr = 3e-4", "lr = 5e-4"))
    try:
        says(
            opened("/program/Pong-s1").page,
            "page",
            r"lr 0\.0003 the file says 0\.0005: extralifectl update Pong-s1 extralife.toml",
        )
    finally:
        application.within(application.host.configure, text)


def test_the_overview_still_shows_its_axis_after_a_visit_to_another_page(opened: Any) -> None:
    page = opened().page
    page.locator("#well").get_by_label("time", exact=True).wait_for(state="attached")
    page.get_by_role("link", name="Compare").click()
    page.locator("#page").get_by_text("log scale").wait_for()
    page.go_back()
    page.locator("#well .tools").wait_for()
    assert page.locator("#well").get_by_label("time", exact=True).is_checked()


def test_a_log_is_live(opened: Any, served: Any) -> None:
    page = opened("/program/Qbert").page
    log = page.get_by_role("region", name="the end of stdout")
    log.get_by_text("Qbert line 40").wait_for()
    with (served[0].host.state_dir / "programs" / "Qbert" / "stdout.log").open("a") as file:
        file.write("Qbert goes on <b>here</b>\n")
    log.get_by_text("Qbert goes on <b>here</b>").wait_for()
    assert log.evaluate("(log) => log.scrollHeight - log.scrollTop - log.clientHeight") < 2


def test_a_page_that_is_left_while_its_log_loads_asks_for_no_log_without_a_name(opened: Any) -> None:
    page = opened().page
    held: list[Any] = []
    page.route("**/logs/Pong-s1/stderr*", lambda route: held.append(route))  # noqa: PLW0108  playwright refuses a builtin
    with page.expect_request("**/logs/Pong-s1/stderr*"):
        page.evaluate("location.hash = '#/program/Pong-s1'")
    page.evaluate("location.hash = '#/'")
    page.locator("#home:not([hidden]) .programs").wait_for()
    with page.expect_request("**/logs/*/stdout*") as asked:
        held[0].continue_()
    assert "/logs/Pong-s1/" in asked.value.url


def test_a_link_shows_the_same_picture(opened: Any) -> None:
    """The choice, the window and the zoom are in the address; one zoom is that of all charts, and double-click ends it."""
    page = opened("/compare?pick=Pong-s1,Breakout-s1&series=mean_return,steps_per_s").page
    box = box_of(page, "mean_return")
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 60, steps=4)
    page.mouse.up()
    shown = ranges(page)
    assert shown["mean_return"] == shown["steps_per_s"]
    page.get_by_label("Choose all of Pong").check()
    link = page.url
    other = opened(link.partition("#")[2]).page
    box_of(other, "steps_per_s")
    assert ranges(other)["steps_per_s"] == pytest.approx(shown["mean_return"], abs=1.0)
    assert other.locator(".values a").all_inner_texts()[:4] == ["Pong-s1", "Breakout-s1", "Pong-s2", "Pong-s3"]
    place = other.locator(".plot[data-game=mean_return]")
    place.dblclick()
    other.wait_for_function("() => !location.hash.includes('zoom')")
    whole = ranges(other)
    assert whole["mean_return"] == whole["steps_per_s"]
    assert whole["mean_return"][1] - whole["mean_return"][0] > 11 * 3600


def test_many_programs_are_searched_sorted_and_chosen(opened: Any, shot: Any) -> None:
    page = opened("/compare").page
    table = page.locator("table.compare")
    table.get_by_role("row", name=re.compile("Pong")).first.wait_for()
    page.get_by_role("button", name="Return", exact=True).click()
    firsts = table.locator("tbody").evaluate_all(
        "(all) => all.map((each) => each.querySelector('.name').innerText.replace(/[▸▾ ]/g, ''))"
    )
    assert firsts.index("Qbert") < firsts.index("Breakout") < firsts.index("Pong"), firsts
    page.get_by_label("Search").fill("breakout")
    table.get_by_role("row", name=re.compile("Pong")).first.wait_for(state="detached")
    page.get_by_role("button", name="Choose these 2").click()
    page.get_by_label("mean of seeds").check()
    page.locator(".values li", has_text="Breakout (n 2)").wait_for()
    box = box_of(page, "mean_return")
    under = page.locator(".values output", has_text=re.compile(r"^\u2212?[\d.]+$"))  # the pointer
    deadline_s = time.monotonic() + 60.0
    while not under.count():  # a chart that is drawn only now shows a value with the next move
        assert time.monotonic() < deadline_s
        page.mouse.move(box["x"] + 700, box["y"] + 60)
        page.mouse.move(box["x"] + 702, box["y"] + 60)
        page.wait_for_timeout(100.0)
    with page.expect_download() as saved:
        page.get_by_role("button", name="CSV").click()
    lines = saved.value.path().read_text().splitlines()
    assert lines[0] == "line,figure,time,value"
    assert re.fullmatch(r"Breakout \(n 2\),mean_return,2027-01-1\dT[\d:.]+Z,[\d.e-]+", lines[1]), lines[1]
    with page.expect_download() as saved:
        page.get_by_role("button", name="PNG").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")
    shot(page, "compare")


def option(name: str) -> Any:
    def choose(page: Any) -> None:
        page.get_by_label("Group by").select_option(name)

    return choose


def at_the_reboot(page: Any) -> None:
    place = page.locator("#broke .timeline")
    place.scroll_into_view_if_needed()
    place.locator("canvas").wait_for()
    first, last = page.evaluate(
        "async () => { const {charts} = await import(document.querySelector('script[type=module]').src); return charts.about().window; }"
    )
    at = page.evaluate(
        "async () => { const {charts} = await import(document.querySelector('script[type=module]').src); return charts.about().bands.find(({kind}) => kind === 'reboot').from_s; }"
    )
    over = place.locator(".u-over").bounding_box()
    page.mouse.click(over["x"] + over["width"] * (at - first) / (last - first), over["y"] + over["height"] * 0.37)


QUESTIONS = [  # the clicks that answer it, and the answer
    ([], "sentence", r"8 of 8 trained"),
    ([], "next", r"all but .* are done .* for another \$"),
    ([], "trained", r"Seaquest given up .*argument --lr: not a number"),
    ([("button", "crash")], "dialog", "last lines"),
    ([at_the_reboot], "dialog", "the host rebooted, unclean"),
    ([("link", "Pong-s2")], "page", r"stop_grace_s 20.0 -> 30.0"),
    ([("link", "Pong-s2"), ("checkbox", "all 3 seeds")], "page", r"Pong-s1 [\d.\u2212]+ Pong-s2 [\d.\u2212]+ Pong-s3 [\d.\u2212]+"),
    ([("link", "Compare"), ("combobox", "Group by"), option("lr")], "page", r"Breakout · lr 0.0001 \(n 2\) [\d.]+ Pong · lr 0.0003 \(n 3\) [\d.\u2212]+"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_each_question_takes_as_many_clicks_as_the_guide_says(opened: Any, number: int) -> None:
    rows = re.findall(r"(?m)^\| [^|]+\? \| (\d) \|", (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text())
    clicks, panel, answer = QUESTIONS[number]
    page = opened().page
    drawn(page)
    for click in clicks:
        if callable(click):
            click(page)
        else:
            page.get_by_role(click[0], name=re.compile(click[1])).first.click()
    says(page, panel, answer)
    assert len(clicks) == int(rows[number]) <= 3
    assert len(rows) == len(QUESTIONS)


def test_two_values_of_a_setting_are_compared_in_three_clicks(opened: Any, shot: Any) -> None:
    page = opened().page
    page.get_by_role("link", name="Compare").click()
    page.get_by_label("Group by").select_option("lr")  # two clicks: open it, choose
    for name in ("Breakout · lr 0.0001 (n 2)", "Pong · lr 0.0003 (n 3)"):
        page.locator(".values li", has_text=name).wait_for()
    page.get_by_role("button", name="Breakout · lr 0.0001").wait_for()
    page.get_by_label("Search").fill("lr=0.0003")
    page.get_by_role("button", name="Choose these 3").wait_for()
    shot(page, "compare-by-a-setting")


def test_a_service_has_a_card_and_a_page_of_its_own(opened: Any) -> None:
    page = opened().page
    says(page, "trained", r"^Trained (\d [a-z ]+ )+Program .* Services tensorboard runs up \d+h")
    drawn(page)
    assert page.locator(".chart figcaption", has_text="tensorboard").count() == 0
    page.get_by_role("link", name="tensorboard").click()
    says(page, "page", "tensorboard is a service: it runs beside the training, up")
    assert page.locator("#page h2").all_inner_texts() == [
        "tensorboard",
        "What broke",
        "Figures",
        "Attempts, and what changed before each",
        "Settings",
        "Logs",
    ]


def test_two_fingers_zoom_and_a_double_tap_shows_all(opened: Any) -> None:
    one = opened("/program/Pong-s1", width=390, height=844, has_touch=True, is_mobile=True)
    page, box = one.page, box_of(one.page, "mean_return")
    whole = ranges(page)["mean_return"]
    touch = one.context.new_cdp_session(page)
    y = box["y"] + 80

    def fingers(kind: str, *xs: float) -> None:
        points = [{"x": box["x"] + x, "y": y, "id": number} for number, x in enumerate(xs)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    fingers("touchStart", 150, 200)
    fingers("touchMove", 120, 230)
    fingers("touchMove", 90, 290)
    fingers("touchEnd")
    page.wait_for_function("() => location.hash.includes('zoom')")
    zoomed = ranges(page)["mean_return"]
    assert zoomed[1] - zoomed[0] < (whole[1] - whole[0]) / 2
    for _ in range(2):
        fingers("touchStart", 150)
        fingers("touchEnd")
    page.wait_for_function("() => !location.hash.includes('zoom')")


def test_the_box_has_a_page(opened: Any, served: Any, shot: Any) -> None:
    from supervisor.features.recorder.rules.recording import Row

    application, _ = served
    host = application.host
    rows = [
        Row(at_s, host.wall_s - host.now_s + at_s, (), ("heavy",), {"available_bytes": 8e9 + at_s, "disk_free_bytes": 5e10, "io_full": 1.5})
        for at_s in range(int(host.now_s) - 3000, int(host.now_s), 10)
    ]  # fmt: skip
    gpu = [
        Row(row.at_s, row.wall_s, ("GPU-5f1c", ""), ("sw_power_cap" if place % 4 == 0 else "",), {"utilisation": 90.0, "temperature_c": 71.0})
        for place, row in enumerate(rows)
    ]  # fmt: skip
    application.within(lambda: host.recording.add({"host": rows, "gpus": gpu}))
    page = opened("/box?window=1h").page
    for name in ("host available_bytes", "host disk_free_bytes", "gpus temperature_c"):
        box_of(page, name)
    says(page, "page", r"night: up [\dhdms ]+, level \w+, 1 reboot of the box, .* \(unclean\)")
    says(page, "page", r"GPU-5f1c sw_power_cap \d+ %")
    says(page, "page", "Free disk 50 GB")
    assert page.locator(".plot[data-game='host swap_free_bytes']").count() == 0, "not recorded here"
    shot(page, "box")


@pytest.mark.parametrize("words", ["/program/Seaquest?tables=yes", "/compare?pick=Pong-s1&q=o", "/box", "/program/nobody"])
def test_axe_finds_nothing_on_the_other_pages(opened: Any, words: str) -> None:
    page = opened(words, scheme="dark").page
    page.locator("#page").get_by_text(re.compile("Seaquest|compared|night|No program of this name")).first.wait_for()
    page.wait_for_timeout(500)
    assert serious(page) == []


_MOVED = (
    "window.moved = 0; new PerformanceObserver((list) => { for (const each of list.getEntries()) if (!each.hadRecentInput) moved += each.value; })"
    ".observe({type: 'layout-shift', buffered: true});"
)


@pytest.mark.parametrize("width", [390, 768, 1024, 1440, 2560])
@pytest.mark.parametrize("words", ["", "/program/Pong-s1", "/compare?pick=Pong-s1,Pong-s2", "/box"])
def test_every_screen_holds_all_and_hardly_moves(opened: Any, shot: Any, words: str, width: int) -> None:
    page = opened(words, width=width, height=900, script=_MOVED).page
    page.locator("#cost .days" if not words else "#page .card").first.wait_for()
    page.wait_for_timeout(1500)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("moved") < 0.1
    beyond = "(all) => all.filter((each) => each.getBoundingClientRect().right > each.closest('.card').getBoundingClientRect().right).length"
    hidden = page.locator(".card td:visible").evaluate_all(beyond)
    assert hidden == 0
    shot(page, f"{words.strip('/').partition('?')[0].replace('/', '-') or 'overview'}-{width}")


@pytest.mark.complains
def test_a_daemon_that_is_gone_says_why_since_when_and_what_to_do(opened: Any) -> None:
    page = opened().page
    page.locator("#live", has_text="live").wait_for()
    page.route("**/api/v1/**", lambda route: route.abort())
    page.evaluate("() => { const real = Date.now.bind(Date); Date.now = () => real() + 14_000; }")
    says(page, "gone", r"Since \d\d:\d\d:\d\d nothing new has come\. Nothing answers at this address: .* Open the tunnel")
    assert page.title() == "(no answer) extralife · night"
    assert "%3E%3F%3C" in page.locator("link[rel=icon]").get_attribute("href"), "a question mark"


def test_a_proxy_that_holds_the_stream_back_leaves_a_page_with_a_status(opened: Any) -> None:
    one = opened()
    one.context.route("**/api/v1/stream", lambda _: None)
    one.page.reload()
    says(one.page, "live", "^live$")


@pytest.mark.complains
@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"abort": True}, "No answer has come yet. Nothing answers"),
        ({"error": "the journal is read"}, "The daemon refuses: the journal is read"),
    ],
)
def test_a_page_whose_first_answer_fails_says_why_and_tries_again(opened: Any, lost: Any, said: str) -> None:
    one = opened()
    one.context.route(
        "**/api/v1/**", lambda route: route.abort() if "abort" in lost else route.fulfill(status=503, json=lost)
    )
    one.page.reload()
    says(one.page, "gone", re.escape(said))
    assert one.page.title() == "(no answer) extralife"
    one.context.unroute("**/api/v1/**")
    says(one.page, "live", "^live$")
    one.page.wait_for_function("() => !document.title.includes('answer')")


@pytest.mark.complains
@pytest.mark.parametrize("view", ["", "/box", "/program/Pong-s1"])
def test_without_the_recorder_each_view_says_that_nothing_is_recorded(opened: Any, view: str) -> None:
    one = opened(view)
    one.context.route("**/api/v1/curves*", lambda route: route.fulfill(status=404, json={"error": "no such page"}))
    one.page.reload()
    one.page.get_by_text("Nothing is recorded: this installation has no recorder.").first.wait_for()


@pytest.mark.complains
def test_a_page_of_which_a_part_is_missing_opens_again(opened: Any) -> None:
    one = opened()
    one.context.route("**/view/chart.js", lambda route: route.abort())
    one.page.reload(wait_until="commit")
    says(one.page, "live", "A part of this page could not be loaded")
    one.context.unroute("**/view/chart.js")
    says(one.page, "live", "^live$")


def test_the_tab_counts_what_needs_somebody(opened: Any) -> None:
    page = opened().page
    page.wait_for_function("() => /^\\(\\d+\\) extralife · night$/.test(document.title)")
    assert "%3E1%3C" in page.locator("link[rel=icon]").get_attribute("href") or "(1)" not in page.title()
