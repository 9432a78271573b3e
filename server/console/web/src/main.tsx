// The console: everything begins here.
import { render } from "preact";
import { App } from "./app";
import "./style/base.css";
import "./style/parts.css";
import "./style/pages.css";
import "./theme";

const root = document.getElementById("app");
if (root) render(<App />, root);
