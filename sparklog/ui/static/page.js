// Pages work without this. It copies texts and links, renews a page that is live, and adds keys: "/" to search, "j" and
// "k" through rows, Enter to open one. Texts are copied as they are shown, and set as text, never as HTML.
"use strict";

const PAUSE_MS = 3000;
const TELL_MS = 10000;
const SHOWN_MS = 2000;
const said = document.getElementById("said");
const follow = document.getElementById("follow");
let isLive = false;
let timer = 0;
let untold = 0;
let toldAt = 0;
let isFailing = false;

// -- to say something to who sees the page and who hears it

function say(text) {
  said.textContent = "";
  setTimeout(() => { said.textContent = text; }, 50);  // the same text again is said again
}

// -- copying

document.documentElement.classList.add("js");

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const link = button.dataset.link;
  const text = link ? new URL(link, location.href).href : button.parentElement.querySelector("pre.value").textContent;
  const isCopied = await copy(text, button);
  say(isCopied ? `Copied ${button.dataset.copy}.` : "The browser does not allow to copy.");
  const name = button.textContent;
  if (button.dataset.name) return;
  button.dataset.name = name;
  button.textContent = isCopied ? "Copied" : "Not copied";
  setTimeout(() => {
    button.textContent = name;
    delete button.dataset.name;
  }, SHOWN_MS);
});

// The clipboard is there on HTTPS and on this machine; elsewhere browsers copy what is selected.
async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (error) {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    button.focus();
    return isCopied;
  }
}

// -- live pages

function setLive(live) {
  const was = isLive;
  isLive = live;
  follow.classList.toggle("on", live);
  follow.textContent = live ? "Pause live" : was ? "Resume live" : "Live";
  clearTimeout(timer);
  if (live) timer = setTimeout(renew, was ? PAUSE_MS : 0);
  try { sessionStorage.setItem("live", live ? location.pathname : ""); } catch (error) { /* not allowed: no matter */ }
}

// Ask for the page again, and change what is different.
async function renew() {
  if (!document.hidden) {
    try {
      await renewNow();
      setFailing(false);
    } catch (error) {
      setFailing(true);
    }
  }
  clearTimeout(timer);
  if (isLive) timer = setTimeout(renew, PAUSE_MS);
}

function setFailing(failing) {
  if (failing && !isFailing) say("Live: no answer. Trying again.");
  isFailing = failing;
  if (isLive) follow.textContent = failing ? "Pause live: no answer" : "Pause live";
}

async function renewNow() {
  const path = document.querySelector("[data-live]")?.dataset.live || location.href;
  const answer = await fetch(path, { headers: { accept: "text/html" }, credentials: "same-origin" });
  if (answer.redirected) {  // the session has ended
    setLive(false);
    say("Live has ended: sign in again.");
    return;
  }
  if (!answer.ok) throw new Error(answer.statusText);
  if (answer.headers.has("refresh") || !isLive) return;  // the answer is not complete yet, or not wanted any more
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const known = new Set([...document.querySelectorAll("#found > li")].map((row) => row.id));
  for (const part of ["#content", ".version", "footer"]) {
    const old = document.querySelector(part);
    const fresh = page.querySelector(part);
    if (old && fresh) update(old, fresh);
  }
  tellNew([...document.querySelectorAll("#found > li")].filter((row) => !known.has(row.id)).length);
}

function tellNew(count) {
  untold += count;
  if (!untold || Date.now() - toldAt < TELL_MS) return;
  say(untold === 1 ? "1 new record." : `${untold} new records.`);
  untold = 0;
  toldAt = Date.now();
}

// Make an element as it is in a fresh page. What is the same stays as it is, with focus, selection, scrolling and what
// was opened; children with ids are found by them. What is selected or has the focus is not removed.
function update(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  updateAttributes(old, fresh);
  const ids = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  const known = new Map();
  for (const child of [...old.children]) {
    if (!child.id) continue;
    if (ids.has(child.id)) known.set(child.id, child);
    else if (!isHeld(child)) child.remove();
  }
  let next = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    let same = child.id ? known.get(child.id) : next;
    while (next && next !== same && (next.id ? !ids.has(next.id) : same && same.id)) next = leave(next);
    if (!same || same.nodeType !== child.nodeType || same.nodeName !== child.nodeName || same.id !== child.id) same = null;
    if (!same) {
      old.insertBefore(document.importNode(child, true), next);
      continue;
    }
    if (same === next) next = next.nextSibling;
    else old.insertBefore(same, next);
    if (same.nodeType === Node.ELEMENT_NODE) update(same, child);
    else if (same.data !== child.data && !isHeld(same)) same.data = child.data;
  }
  while (next) next = leave(next);
}

// Remove a node unless it is held, and return the one after it.
function leave(node) {
  const next = node.nextSibling;
  if (!isHeld(node)) node.remove();
  return next;
}

function updateAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
}

function isHeld(node) {
  const selection = getSelection();
  const isSelected = !selection.isCollapsed && selection.containsNode(node, true);
  return isSelected || (node !== document.body && node.contains(document.activeElement));
}

if (follow) {
  follow.hidden = !document.querySelector(".version") || Boolean(document.querySelector("[data-still]"));
  follow.addEventListener("click", () => {
    setLive(!isLive);
    say(isLive ? "Live: the page renews itself." : "Live is paused.");
  });
  let isWanted = new URLSearchParams(location.search).get("live") === "on";
  try { isWanted ||= sessionStorage.getItem("live") === location.pathname; } catch (error) { /* not allowed */ }
  if (isWanted && !follow.hidden) setLive(true);
}

// -- keys

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
