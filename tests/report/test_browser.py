"""Pages in a real browser: silent, offline, readable on a phone, in the dark and on paper, accessible."""

import re
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import browser
from tests.report.conftest import NAMES, example, page

pytestmark = pytest.mark.timeout(180)
WIDTHS = {"phone": 360, "desk": 1280}

# Contrast of every text with what is behind it, and of marks with the paper; colours are opaque.
CONTRAST = """() => {
  const channel = value => (value /= 255, value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = rgb => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const numbers = text => text.match(/[\\d.]+/g).map(Number);
  const ratio = (a, b) => {
    const [x, y] = [light(a), light(b)];
    return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
  };
  const ground = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const mixed = (front, share, back) => front.map((value, i) => share * value + (1 - share) * back[i]);
  const found = {text: 99, cell: 99, mark: 99};
  const opaque = [[0, 114, 178], [213, 94, 0]], strongest = 0.5;  // cells of maps
  for (const one of document.querySelectorAll("svg text")) {
    const ink = numbers(getComputedStyle(one).fill), back = ground(one.closest("svg"));
    const place = one.getBoundingClientRect();
    found.text = Math.min(found.text, ratio(ink, back));
    for (const image of one.closest("svg").querySelectorAll("image")) {
      const box = image.getBoundingClientRect();
      const across = box.left < place.left && place.right < box.right;
      if (!across || place.top < box.top || place.bottom > box.bottom) continue;
      for (const colour of opaque) found.cell = Math.min(found.cell, ratio(ink, mixed(colour, strongest, back)));
    }
  }
  for (const one of document.querySelectorAll("p, a, h1, h2, dt, dd, li, th, td, caption, strong, code, summary")) {
    found.text = Math.min(found.text, ratio(numbers(getComputedStyle(one).color), ground(one)));
  }
  const marks = "svg.chart [style*=series], svg.chart [style*=muted], svg.chart [style*=rows], rect.fill, rect.anchor";
  for (const one of document.querySelectorAll(marks)) {
    const style = getComputedStyle(one), own = one.getAttribute("style") || "";
    const line = own.includes("stroke: var") && !own.includes("fill: var");
    const colour = line ? style.stroke : style.fill;
    if (one.tagName !== "text" && Number(style.fillOpacity) === 1 && Number(style.opacity) === 1) {
      found.mark = Math.min(found.mark, ratio(numbers(colour), ground(one.closest("svg"))));
    }
  }
  return found;
}"""

# Words of a drawing that lie on each other, or leave it.
COLLISIONS = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("svg.chart")) {
    const frame = svg.getBoundingClientRect();
    if (!frame.width) continue;
    const words = [...svg.querySelectorAll("text")].filter(one => one.textContent.trim());
    const boxes = words.map(one => one.getBoundingClientRect());
    boxes.forEach((box, i) => {
      const across = Math.max(frame.left - box.left, box.right - frame.right);
      const beyond = Math.max(across, frame.top - box.top, box.bottom - frame.bottom);
      if (beyond > 3) found.push(["beyond", words[i].textContent, svg.ariaLabel]);
      for (let j = 0; j < i; j++) {
        const across = Math.min(box.right, boxes[j].right) - Math.max(box.left, boxes[j].left);
        const down = Math.min(box.bottom, boxes[j].bottom) - Math.max(box.top, boxes[j].top);
        if (across > 3 && down > 5) found.push([words[i].textContent, "on", words[j].textContent, svg.ariaLabel]);
      }
    });
  }
  return found;
}"""


@pytest.fixture(scope="module")
def chrome():
    with browser() as opened:
        yield opened


@contextmanager
def shown(chrome, folder, text, scheme="light"):
    """Open a page from disk as a person does; nothing may be said on the console or asked of the network."""
    said, asked, place = [], [], folder / "page.html"
    place.write_text(text, encoding="utf-8")
    context = chrome.new_context(color_scheme=scheme)
    context.route("**/*", lambda route: _only_the_page(route, asked))
    opened = context.new_page()
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(place.as_uri())
    yield opened
    context.close()
    assert said == []
    assert asked == []


@pytest.fixture(scope="module")
def held(chrome, name, tmp_path_factory):
    with shown(chrome, tmp_path_factory.mktemp(name), page(name)) as opened:
        yield opened


@pytest.fixture
def opened(held):
    """A model's page, which several tests look at, as a desk shows it by day."""
    held.set_viewport_size({"width": WIDTHS["desk"], "height": 800})
    held.emulate_media(media="screen", color_scheme="light")
    return held


def _only_the_page(route, asked):
    url = route.request.url
    if url.startswith(("file:", "data:")):
        route.continue_()
    else:
        asked.append(url)
        route.abort()


def faults(opened):
    """What axe has to say against a page."""
    found = Axe().run(opened).response["violations"]
    return [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found]


def test_a_page_fits_the_screen(opened):
    for width in WIDTHS.values():
        opened.set_viewport_size({"width": width, "height": 800})
        wide = opened.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
        assert max(wide) <= width
        beyond = opened.evaluate(
            """() => [...document.querySelectorAll("p, h1, h2, dt, dd, li, figure, svg.chart, img")]
                .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML)"""
        )
        assert beyond == []
        letters = opened.evaluate(
            """() => [...document.querySelectorAll("svg.chart text")].filter(one => one.getBoundingClientRect().width)
                .map(one => parseFloat(getComputedStyle(one).fontSize) * one.ownerSVGElement.clientWidth
                    / one.ownerSVGElement.viewBox.baseVal.width)"""
        )
        assert min(letters) > 8.5  # pixels of the smallest ones
        assert opened.evaluate(COLLISIONS) == []


def test_pictures_have_the_colours_of_the_page(name):
    """Each colour is a variable of the style sheet, which has it for the light and for the dark."""
    styles = re.findall(r'<svg[^>]*class="chart.*?</svg>', page(name), re.DOTALL)
    assert styles
    for one in styles:
        assert not re.search(r'style="[^"]*#[0-9a-f]{3}', one)
        for variable in set(re.findall(r"var\(--([\w-]+)\)", one)):
            assert page(name).count(f"--{variable}: ") == 2


def test_a_page_is_accessible(opened):
    """Structure once, colours in the light and in the dark."""
    assert faults(opened) == []
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        contrast = opened.evaluate(CONTRAST)
        assert min(contrast["text"], contrast["cell"]) >= 4.5, (scheme, contrast)
        assert contrast["mark"] >= 3.0, (scheme, contrast)


def test_a_page_prints(opened):
    """On paper it is black on white, whatever the screen's colours, and no table is cut off."""
    opened.emulate_media(media="print", color_scheme="dark")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.evaluate("getComputedStyle(document.body).color") == "rgb(22, 32, 42)"
    opened.set_viewport_size({"width": 688, "height": 1000})  # what A4 leaves between the margins
    assert opened.evaluate("document.documentElement.scrollWidth") <= 688
    cut = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert opened.evaluate(cut) == 0
    paper = opened.pdf(format="A4", tagged=True)
    assert paper.startswith(b"%PDF")
    assert len(paper) > 10_000


def test_the_policy_forbids_scripts_and_requests(chrome, tmp_path):
    """Even if something of a model's got through: the browser refuses to run or to fetch it."""
    evil = '<script>document.title = "run"</script><img src="https://example.org/a.png" alt="x">'
    text = page("mixture").replace("</body>", f"{evil}</body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    context = chrome.new_context()
    asked = []
    context.route("**/*", lambda route: _only_the_page(route, asked))
    opened = context.new_page()
    opened.goto((tmp_path / "page.html").as_uri())
    assert opened.title() == "Gaussian mixture"
    assert asked == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notebooks_show_models_in_their_own_colours(chrome, tmp_path, scheme):
    back, ink = ("#ffffff", "#222222") if scheme == "light" else ("#111111", "#e0e0e0")
    models = "".join(example(name)[0]._repr_html_() for name in NAMES)
    head = "<!doctype html><html lang=en><title>Notebook</title><link rel=icon href='data:,'>"
    text = f"{head}<body style='background:{back};color:{ink}'><main><h1>Models</h1>{models}</main></html>"
    with shown(chrome, tmp_path, text, scheme) as opened:
        opened.set_viewport_size({"width": 700, "height": 800})
        assert opened.evaluate(CONTRAST)["text"] >= 4.5
        if scheme == "light":
            assert faults(opened) == []
        assert opened.evaluate("document.documentElement.scrollWidth") <= 700
