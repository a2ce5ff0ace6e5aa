"use strict";

const sans = "system-ui, sans-serif";
const mono = "ui-monospace, Menlo, Consolas, monospace";

Redoc.init(
  "openapi.json",
  {
    expandResponses: "200,201,202",
    hideHostname: true,
    nativeScrollbars: true,
    theme: {
      colors: { primary: { main: "#1f5f4a" } },
      typography: {
        fontFamily: sans,
        headings: { fontFamily: sans },
        code: { fontFamily: mono },
      },
    },
  },
  document.getElementById("reference"),
);
