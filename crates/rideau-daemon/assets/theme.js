// Before the first line is drawn: the theme that was chosen here.
(() => {
  try {
    const theme = localStorage.getItem("rideau-theme");
    if (theme) document.documentElement.dataset.theme = theme;
    if (localStorage.getItem("rideau-look")) document.documentElement.dataset.look = "only";
  } catch { /* Nothing is kept here. */ }
})();
