// What pages do beside htmx. Without script all of it is left out, and nothing is lost.
(() => {
	"use strict";
	const root = document.documentElement;
	root.classList.add("scripted");
	const say = (text) => { document.getElementById("status").textContent = text; };

	document.addEventListener("click", (event) => {
		const off = event.target.closest("[aria-disabled='true']");
		if (off) {
			event.preventDefault();
			return;
		}
		const menu = event.target.closest("[data-menu]");
		if (menu) {
			const open = document.getElementById("nav").classList.toggle("open");
			menu.setAttribute("aria-expanded", String(open));
			return;
		}
		const copy = event.target.closest("[data-copy]");
		if (copy) {
			navigator.clipboard.writeText(copy.dataset.copy).then(() => say("Copied"), () => say("Could not copy"));
		}
	});

	// A form that needs a name typed is switched on by it; the server asks again.
	document.addEventListener("input", (event) => {
		const form = event.target.closest("form[data-typed]");
		if (form && event.target.name === "confirm") {
			const button = form.querySelector("button[type='submit']");
			button.setAttribute("aria-disabled", String(event.target.value !== form.dataset.typed));
		}
	});

	const settle = (within) => {
		const summary = within.querySelector("[data-focus]");
		if (summary) {
			summary.focus();
		}
		for (const form of within.querySelectorAll("form[data-typed]")) {
			form.querySelector("button[type='submit']").setAttribute("aria-disabled", "true");
		}
	};
	settle(document);
})();
