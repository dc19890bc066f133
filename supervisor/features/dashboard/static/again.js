// Opens the page again once the server answers, if a part of it could not be loaded.

const again = () => fetch("/", { cache: "no-store" }).then(({ ok }) => (ok ? location.reload() : Promise.reject())).catch(() => setTimeout(again, 3_000));

addEventListener("error", ({ target }) => {
  if (!(target instanceof HTMLScriptElement)) return;
  document.getElementById("live").textContent = "A part of this page could not be loaded. It tries again.";
  setTimeout(again, 3_000);
}, true);
