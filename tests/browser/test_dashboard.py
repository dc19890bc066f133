"""The dashboard in a real browser, over a night of a simulated box behind the real API."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from night import HOSTILE
from tools import PATIENCE

AXE = Path(__file__).parent / "axe-core" / "axe.min.js"
SHOWN = "\\x1b[31mred\\x1b[0m \\u202egnp.exe \\x07"  # what is left of it to be read
SERIOUS = {"serious", "critical"}


def says(page: Any, panel: str, pattern: str) -> None:
    """Wait until this is found in a panel: each asks for pages of its own."""
    until_s = time.monotonic() + 15.0 * PATIENCE
    while not re.search(pattern, found := " ".join(page.locator(f"#{panel}").inner_text().split())):
        assert time.monotonic() < until_s, found
        page.wait_for_timeout(50)


def drawn(page: Any) -> None:
    """Wait until the first chart is on the page."""
    page.locator(".chart canvas").first.wait_for()


def ranges(page: Any) -> Any:
    """What range of x each chart shows, by game."""
    return page.evaluate(
        """async () => {
        const app = document.querySelector('script[type=module]').src;
        const {charts} = await import(app);
        return Object.fromEntries([...document.querySelectorAll('.plot')].map(
            (place) => [place.dataset.game, charts.of(place.dataset.game)?.range]));
    }"""
    )


# --- what it says ------------------------------------------------------------------------------------------------------


def test_the_five_answers_are_on_the_page(opened: Any, shot: Any) -> None:
    page = opened().page
    drawn(page)
    page.locator("#broke .timeline canvas").wait_for()
    page.locator("#cost .days").wait_for()
    says(
        page, "sentence",
        r"^Since [\w :]+: 8 of 8 trained, [\d.]+ M steps kept \(\d+ % of the time useful\), 1 reboot, \$15\.\d\d, all but Seaquest done \d+ \w+( ± [\w ]+)?\.$",
    )  # fmt: skip
    says(page, "trained", "Seaquest given up")
    says(page, "trained", "argument --lr: not a number")
    for name in ("Pong-s1", "Pong-s2", "Breakout-s1", "Qbert"):
        says(page, "trained", f"{name} training")
    says(page, "well", r"Pong \u2212?[\d.]+ mean of n 3, ± standard error")
    says(page, "broke", r"1 \u00d7 reboot of the host, unclean \(power\)")
    says(page, "broke", r"2 \u00d7 stall \(hang\) Pong-s1, Pong-s2")
    says(page, "cost", r"\$15\.\d\d for 12h of the box")
    says(page, "cost", r"useful 9\d %")
    says(page, "next", "Seaquest was given up")
    heavy = r"heavy 8 \u00d7 128 [\d.]+ k steps/min 7h 57m at least 2h 2m [\d.]+ M at least [\d.]+ M 116d \d+h"
    says(page, "next", heavy)
    says(page, "next", "would have kept in 12h: measured, never scaled. \u201cAt least\u201d holds with 90 % confidence")
    says(page, "cost", r"01-15 [\d.]+ M [\d.]+ k")
    shot(page, "light")


def test_what_strangers_wrote_stays_text(opened: Any) -> None:
    """HTML, escape sequences, bidirectional overrides: in a reason, in evidence, in a log."""
    page = opened().page
    page.get_by_role("button", name=re.compile("crash.*OSError")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("region", name="last_lines").wait_for()
    assert "<img src=x onerror=alert(1)><script>alert(2)</script>" in dialog.inner_text()
    assert SHOWN in dialog.inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Qbert", exact=True).click()
    page.locator("#page pre", has_text="Qbert: <img src=x").wait_for()
    assert SHOWN in page.locator("#page").inner_text()
    assert page.locator("img, #home script, #page script, dialog script").count() == 0
    for char in HOSTILE:
        assert char.isprintable() or char not in page.locator("body").inner_text().replace("\n", "")


def test_a_figure_of_another_name_has_a_curve(opened: Any) -> None:
    page = opened("series=success_rate&tables=yes").page
    drawn(page)
    page.get_by_role("region", name="table").first.wait_for()
    assert page.locator("select").filter(has_text="success_rate").input_value() == "success_rate"
    assert page.locator(".chart table th", has_text="success_rate").count() == 4
    assert page.locator(".chart .value").first.inner_text() != "\u2013"
    page.get_by_role("link", name="Pong-s1", exact=True).click()
    page.locator("#page dt", has_text="success_rate").wait_for()
    gone = opened("series=constructor").page
    drawn(gone)
    assert "mean return" in gone.locator(".plot").first.get_attribute("aria-label")


# --- live ----------------------------------------------------------------------------------------------------------------


def test_a_change_arrives_and_moves_no_zoom(opened: Any, served: Any) -> None:
    application, _ = served
    page = opened().page
    drawn(page)
    place = page.locator(".plot[data-game=Qbert]")
    place.scroll_into_view_if_needed()
    place.locator("canvas").wait_for()
    before = ranges(page)["Qbert"]
    box = place.bounding_box()
    page.mouse.move(box["x"] + 120, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 60, steps=4)
    page.mouse.up()
    zoomed = ranges(page)["Qbert"]
    assert zoomed[1] - zoomed[0] < (before[1] - before[0]) / 2
    application.within(lambda: application.host.ends("Breakout-s2", code=1, last_lines=("gone",), after_s=1.0))
    row = page.get_by_role("row", name=re.compile("Breakout-s2"))
    row.get_by_text("restarts soon").or_(row.get_by_text("restoring")).or_(row.get_by_text("starting")).first.wait_for()
    application.run(60.0)
    application.within(application.host.write_down)
    page.evaluate(
        "async () => (await import(document.querySelector('script[type=module]').src)).renew('curves', 'incidents')"
    )
    page.get_by_role("button", name=re.compile("crash.*gone")).first.wait_for()
    assert ranges(page)["Qbert"] == zoomed
    place.focus()
    page.keyboard.press("0")
    assert ranges(page)["Qbert"][0] == pytest.approx(before[0], abs=120.0)


def test_old_news_greys_the_page_and_shows_its_age(opened: Any, served: Any) -> None:
    page = opened().page
    page.locator("#live", has_text="live").wait_for()
    page.evaluate("() => { const real = Date.now.bind(Date); Date.now = () => real() + 14_000; }")
    page.locator("#live", has_text=re.compile(r"No update for \d+s: showing the state at \d\d:\d\d:\d\d")).wait_for()
    assert "old" in page.locator("body").get_attribute("class")
    assert serious(page) == []
    served[0].run(15.0)
    page.locator("#live", has_text="live").wait_for()
    assert "old" not in page.locator("body").get_attribute("class")


def test_two_tabs_share_one_stream_and_a_tab_that_ends_passes_it_on(opened: Any, served: Any) -> None:
    application, _ = served
    first = opened()
    streams: list[str] = []
    first.page.locator("#live", has_text="live").wait_for()
    while not first.page.evaluate("navigator.locks.query().then((locks) => locks.held.length)"):
        first.page.wait_for_timeout(20)  # until the first tab leads, the second may
    second = first.context.new_page()
    second.on("request", lambda request: streams.append(request.url) if request.url.endswith("/stream") else None)
    second.goto(first.page.url)
    second.get_by_role("row", name=re.compile("Qbert training")).wait_for()
    assert streams == [], "the second tab has opened no stream: the first one's is enough"
    application.within(lambda: application.host.ends("Qbert", code=1, last_lines=("gone",), after_s=1.0))
    second.get_by_role("row", name=re.compile("Qbert restoring|Qbert starting|Qbert restarts soon")).wait_for()
    with first.context.expect_event("request", lambda request: request.url.endswith("/stream")):
        first.page.close()
    application.run(60.0)
    second.get_by_role("row", name=re.compile("Qbert training")).wait_for()


# --- evidence and actions ------------------------------------------------------------------------------------------------


def test_an_incident_opens_its_evidence(opened: Any, shot: Any) -> None:
    page = opened().page
    page.get_by_role("button", name=re.compile(r"2 \u00d7 stall \(hang\)")).click()
    dialog = page.get_by_role("dialog", name="stall (hang), 2 times")
    dialog.get_by_text("decided: stopping").wait_for()
    assert "File x" in dialog.get_by_role("region", name="stacks").inner_text()
    assert dialog.locator("details").count() == 1
    dialog.get_by_role("button", name="Show all 2").click()
    dialog.locator("details").nth(1).locator("summary", has_text="Pong-s2").wait_for()
    shot(page, "incident", whole=False)
    dialog.get_by_role("button", name="Close").click()
    assert not page.locator("dialog[open]").count()


def test_an_event_of_the_timeline_opens_by_keyboard(opened: Any) -> None:
    page = opened().page
    page.locator("#broke .timeline canvas").wait_for()
    timeline = page.get_by_role("slider", name=re.compile("Timeline"))
    timeline.focus()
    heard = []
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        heard.append(timeline.get_attribute("aria-valuetext"))
        if "· reboot, 3m" in heard[-1]:
            break
    assert any("level heavy, trial" in each for each in heard), heard
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Reboot").get_by_text("the host rebooted, unclean").first.wait_for()
    page.keyboard.press("Escape")
    while "settings changed" not in timeline.get_attribute("aria-valuetext"):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="Pong-s1: settings changed").get_by_text("stop_grace_s 20.0 -> 30.0").wait_for()


def test_an_action_asks_names_what_happens_and_shows_the_answer(opened: Any, served: Any) -> None:
    application, _ = served
    page = opened().page
    page.get_by_role("link", name="Pong-s3", exact=True).click()
    page.get_by_role("button", name="Stop …").click()
    dialog = page.get_by_role("dialog", name="Stop Pong-s3?")
    assert "Pong-s3 saves a checkpoint and leaves. It stays stopped" in dialog.inner_text()
    assert application.host.core.state.programs["Pong-s3"].phase.value == "RUNNING", "nothing was asked yet"
    dialog.get_by_role("button", name="Stop Pong-s3").click()
    dialog.get_by_role("status").get_by_text("Pong-s3: stopped").wait_for()
    assert application.host.core.state.programs["Pong-s3"].phase.value == "STOPPED"
    dialog.get_by_role("button", name="Close").last.click()
    page.locator("#page .head", has_text="stopped").wait_for()
    page.get_by_role("button", name="Start …").click()
    page.get_by_role("button", name="Start Pong-s3").click()
    page.get_by_role("dialog").get_by_text("Pong-s3: started").wait_for()


def test_what_starts_again_by_itself_can_be_stopped(opened: Any, served: Any) -> None:
    """A program in a crash loop had only Start."""
    application, _ = served
    page = opened().page
    for _ in range(6):  # the first restart comes at once
        application.within(lambda: application.host.ends("Breakout-s2", code=1, last_lines=("gone",), after_s=0.5))
        if application.host.core.state.programs["Breakout-s2"].phase.value == "BACKOFF":
            break
        application.run(2.0)
    page.get_by_role("row", name=re.compile("Breakout-s2 restarts soon")).wait_for()
    page.get_by_role("link", name="Breakout-s2", exact=True).click()
    dialog, head = page.get_by_role("dialog"), page.locator("#page .head")
    head.get_by_role("button", name="Start …").wait_for()
    head.get_by_role("button", name="Stop …").click()
    dialog.get_by_role("button", name="Stop Breakout-s2").click()
    dialog.get_by_role("status").get_by_text("Breakout-s2: stopped").wait_for()
    dialog.get_by_role("button", name="Close").last.click()
    head.get_by_text("stopped").wait_for()
    assert head.get_by_role("button", name="Stop …").count() == 0


def test_a_level_is_pinned_and_unpinned(opened: Any, served: Any) -> None:
    application, _ = served
    page = opened().page
    page.get_by_role("button", name="Pin medium").click()
    dialog = page.get_by_role("dialog", name="Pin level medium?")
    assert "with 5 programs of 64 environments, and no other level is tried" in dialog.inner_text()
    dialog.get_by_label("For").select_option("24")
    dialog.get_by_role("button", name="Pin medium").click()
    dialog.get_by_role("status").get_by_text(re.compile(r"\w")).filter(has_not_text="waits").wait_for()
    pin = application.host.core.state.climb.pin
    assert (pin.level, round((pin.until_s - application.host.core.now_s) / 3600)) == ("medium", 24)
    dialog.get_by_role("button", name="Close").last.click()
    page.evaluate("async () => (await import(document.querySelector('script[type=module]').src)).renew('level')")
    page.get_by_role("button", name="Unpin").click()
    page.get_by_role("dialog").get_by_role("button", name="Unpin").click()
    page.get_by_role("status").filter(has_not_text=re.compile("waits|live")).get_by_text(re.compile(r"\w")).wait_for()
    assert application.host.core.state.climb.pin is None


@pytest.mark.complains
def test_a_refusal_is_shown(opened: Any) -> None:
    page = opened().page
    page.get_by_role("link", name="Qbert", exact=True).click()
    page.get_by_role("button", name="Back up …").click()
    page.route("**/api/v1/backup", lambda route: route.fulfill(status=503, json={"error": "the disk is full <b>now</b>"}))
    page.get_by_role("button", name="Back up Qbert").click()
    page.get_by_role("dialog").locator("p.trouble", has_text="the disk is full <b>now</b>").wait_for()


@pytest.mark.complains  # the browser itself reports each answer 503
def test_figures_that_cannot_be_renewed_say_so(opened: Any) -> None:
    """The status goes on while the journal cannot be read: old figures looked like new ones."""
    page = opened().page
    says(page, "next", "would have kept")
    says(page, "cost", "useful")
    for name in ("report", "cost"):
        page.route(f"**/api/v1/{name}?*", lambda route: route.fulfill(status=503, json={"error": "this cannot be read now"}))
    page.evaluate("async () => (await import(document.querySelector('script[type=module]').src)).renew('report', 'cost')")
    says(page, "next", "^Next Report: this cannot be read now .* would have kept")
    says(page, "cost", "^Cost Cost: this cannot be read now .* useful")


# --- for everybody ---------------------------------------------------------------------------------------------------------


def serious(page: Any) -> list[str]:
    """What axe finds."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes']]}"
        for each in found
        if each["impact"] in SERIOUS
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened: Any, shot: Any, scheme: str) -> None:
    page = opened("tables=yes", scheme=scheme).page
    drawn(page)
    page.locator("#broke .incidents li").first.wait_for()
    assert serious(page) == []
    page.get_by_role("button", name=re.compile("crash.*OSError")).click()
    page.get_by_role("region", name="last_lines").wait_for()
    assert serious(page) == []
    shot(page, f"evidence-{scheme}", whole=False)


def test_everything_is_reached_by_keyboard(opened: Any) -> None:
    page = opened().page
    drawn(page)
    page.locator("#broke .timeline canvas").wait_for()
    page.locator("#cost .days").wait_for()
    reached = []
    for _ in range(80):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const it = document.activeElement; const style = getComputedStyle(it);
            const seen = it.matches('input[type=radio]') ? getComputedStyle(it.nextElementSibling) : style;
            return [it.tagName, it.getAttribute('aria-label') || it.innerText || it.name || '', seen.outlineStyle]; }"""
        )
        if focused[0] == "BODY":
            break
        assert focused[2] != "none", f"the focus on {focused[1]!r} cannot be seen"
        reached.append(f"{focused[0]} {focused[1]}")
    told = "\n".join(reached)
    for name in ("Qbert", "Pin light", "Pong: mean return", "Timeline", "crash"):
        assert name in told, told
    slider = page.get_by_role("slider", name=re.compile("Qbert"))
    slider.focus()
    page.keyboard.press("End")
    newest = slider.get_attribute("aria-valuetext")
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuetext") != newest
    before = ranges(page)["Qbert"]
    page.keyboard.press("+")
    after = ranges(page)["Qbert"]
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) / 2)
    page.keyboard.press("0")
    assert ranges(page)["Qbert"] == before


_WATCHED = """
window.places = new Set();
(function look() {
  for (const each of document.querySelectorAll("#trained .name")) {
    if (each.textContent === "Pong-s3") places.add(each.getBoundingClientRect().top);
  }
  requestAnimationFrame(look);
})();
"""


def test_nothing_moves_under_the_pointer_while_the_page_completes(opened: Any) -> None:
    page = opened(script=_WATCHED).page
    page.locator("#broke .incidents li").first.wait_for()
    drawn(page)
    assert page.evaluate("places.size") == 1, page.evaluate("[...places]")


@pytest.mark.parametrize("width", [320, 390])
def test_a_phone_scrolls_in_one_direction(opened: Any, shot: Any, width: int) -> None:
    page = opened(width=width, height=720, has_touch=True, is_mobile=True).page
    page.locator("#broke .incidents li").first.wait_for()
    page.locator("#well .legend").wait_for()
    for _ in range(8):
        page.mouse.wheel(0, 700)
    drawn(page)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    order = page.evaluate(
        "['sentence', 'trained', 'next', 'well', 'broke', 'cost'].map((id) => document.getElementById(id).getBoundingClientRect().top)"
    )
    assert order == sorted(order)
    page.evaluate("scrollTo(0, 0)")
    shot(page, f"phone-{width}")


def test_a_number_of_a_row_on_a_phone_has_its_unit_and_an_unknown_one_is_not_shown(opened: Any) -> None:
    page = opened(width=390, height=844, has_touch=True, is_mobile=True).page
    page.locator("#trained .programs").wait_for()
    shown = """(all) => all.filter((each) => getComputedStyle(each).visibility === 'visible').map((each) => ['::before', '::after']
      .map((place) => getComputedStyle(each, place).content.replace(/none|"/g, '')).join(each.innerText).replace(/[\\d.,]+/g, '1').trim())"""

    def numbers(name: str) -> Any:
        return page.locator(".programs tr", has=page.locator(f"a[title={name}]")).locator("td.number").evaluate_all(shown)

    rate, steps, left, saved = numbers("Pong-s1")
    assert (rate, steps, left) == ("1 /s", "1 M of 1 G steps", "1d 1h left")
    assert re.fullmatch("saved (now|1[sm] ago)", saved)
    assert numbers("Seaquest") == ["1 M steps"], "it was given up: no rate, end and age"


def shows_less_than(page: Any, most: float) -> None:
    """Wait until the axis of x of Qbert ends below this."""
    until_s = time.monotonic() + 15.0 * PATIENCE
    while (shown := ranges(page)["Qbert"]) is None or shown[1] >= most:
        assert time.monotonic() < until_s, shown
        page.wait_for_timeout(20)


def test_each_axis_and_the_score_of_a_human(opened: Any, shot: Any) -> None:
    page = opened("axis=steps&human=yes").page
    drawn(page)
    assert ranges(page)["Qbert"][1] < 10_000_000, "steps, not seconds since 1970"
    page.get_by_role("slider", name=re.compile("Qbert: human-normalised score")).wait_for()
    shot(page, "steps")
    value = float(page.locator("figure", has_text="Qbert").locator(".value").inner_text())
    assert 0 < value < 1.5
    page.locator("label", has_text="trained hours").click()
    shows_less_than(page, 13.0)
    page.locator("label", has_text="dollars").click()
    shows_less_than(page, 5.0)
    assert "axis=dollars" in page.url
