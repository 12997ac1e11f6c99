import "uplot/dist/uPlot.min.css";
import "./app.css";
import { render } from "preact";
import { App } from "./app.js";
import { html } from "./lib/html.js";

render(html`<${App} />`, document.getElementById("app"));
