// Pages work without this. It renews the page while "Live" is pressed, and adds keys: "/" to search, "j" and "k" (or
// arrows) through rows, Enter to open one.
"use strict";

const PAUSE_MS = 3000;
const follow = document.getElementById("follow");
let timer = 0;

function isLive() {
  return follow.getAttribute("aria-pressed") === "true";
}

function setLive(live) {
  follow.setAttribute("aria-pressed", String(live));
  follow.textContent = live ? "Live: on" : "Live";
  clearTimeout(timer);
  if (live) timer = setTimeout(renew, PAUSE_MS);
  try { sessionStorage.setItem("live", live ? location.pathname : ""); } catch (error) { /* not allowed: no matter */ }
}

// Replace the content by that of a new request of the same address, unless the reader is typing or has opened a detail.
async function renew() {
  if (!isLive()) return;
  const main = document.getElementById("content");
  const isBusy = main.contains(document.activeElement) && document.activeElement.matches("input, select, textarea");
  if (!document.hidden && !isBusy) {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("content");
      if (answer.ok && fresh) keepOpened(main, fresh);
      for (const part of [".version", "footer"]) {
        const old = document.querySelector(part);
        const renewed = page.querySelector(part);
        if (old && renewed) old.replaceWith(document.importNode(renewed, true));
      }
    } catch (error) {
      setLive(false);
    }
  }
  if (isLive()) timer = setTimeout(renew, PAUSE_MS);
}

function keepOpened(main, fresh) {
  const opened = [...main.querySelectorAll("details")].map((each) => each.open);
  const scrolled = [...main.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  main.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
  main.querySelectorAll("details").forEach((each, index) => { each.open = Boolean(opened[index]); });
  main.querySelectorAll(".scroll").forEach((each, index) => {
    if (scrolled[index]) [each.scrollLeft, each.scrollTop] = scrolled[index];
  });
}

function moveRow(step) {
  const rows = [...document.querySelectorAll("main tbody tr a:first-of-type, main .records .meta a")];
  const links = rows.filter((link) => !link.closest("details:not([open])"));
  if (!links.length) return;
  const here = links.indexOf(document.activeElement);
  links[Math.min(Math.max(here + step, 0), links.length - 1)].focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  const search = document.querySelector("main input[type=search], main .browse input");
  if (event.key === "/" && search) { event.preventDefault(); search.focus(); search.select(); }
  if (event.key === "j") moveRow(1);
  if (event.key === "k") moveRow(-1);
});

if (follow) {
  follow.hidden = !document.querySelector(".version");
  follow.addEventListener("click", () => setLive(!isLive()));
  try { if (sessionStorage.getItem("live") === location.pathname) setLive(true); } catch (error) { /* not allowed */ }
}
