// The frame around the pages: where one can go, who one is, and whether the server answers.
import { Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { connection, connectionDetail, logIn, logOut, select, user } from "./api";
import { OverviewPage } from "./overview/overview";
import { Icon, type IconName } from "./parts/icon";
import { TipLayer } from "./parts/tip";
import { RoomPage } from "./room/room";
import { go, route, type Page } from "./route";
import { SqlPage } from "./sql/sql";
import { isDark, toggleTheme } from "./theme";
import { TimePage } from "./time/time";

const PAGES: { page: Page; name: string; icon: IconName; key: string }[] = [
  { page: "overview", name: "Overview", icon: "graph", key: "1" },
  { page: "sql", name: "SQL", icon: "code", key: "2" },
  { page: "time", name: "Time", icon: "clock", key: "3" },
  { page: "room", name: "Machine room", icon: "gauge", key: "4" },
];

/** Between two attempts to reach a server that is away (milliseconds). */
const RETRY_MS = 1000;

export function App() {
  const { page } = route.value;
  const state = connection.value;
  /** Before it is known who is here, nothing is shown and nothing else is asked. */
  const isKnown = state !== "unknown" && (state !== "login" || user.value !== undefined);
  useEffect(() => {
    // Alt with a digit leads to a page, from anywhere.
    const pressed = (event: KeyboardEvent) => {
      const found = event.altKey && PAGES.find((entry) => entry.key === event.key);
      if (!found) return;
      event.preventDefault();
      go(found.page);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useEffect(() => {
    scrollTo(0, 0);
    document.title = `${PAGES.find((entry) => entry.page === page)?.name ?? ""} · millrace`;
  }, [page]);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the page
      </a>
      <header class="top">
        <span class="brand">
          <img src="/console/icon.svg" alt="" width="22" height="22" /> millrace
        </span>
        <nav aria-label="pages">
          {PAGES.map((entry) => (
            <a key={entry.page} href={`#/${entry.page}`} aria-current={page === entry.page ? "page" : undefined} data-tip={`Alt-${entry.key}`}>
              <Icon name={entry.icon} />
              <span>{entry.name}</span>
            </a>
          ))}
        </nav>
        <span class="grow" />
        <Pulse />
        {user.value !== undefined && (
          <button class="plain who" onClick={logOut} data-tip="Forgets who you are.">
            {user.value}: log out
          </button>
        )}
        <button class="plain" onClick={toggleTheme} aria-label={isDark.value ? "Light" : "Dark"}>
          <Icon name={isDark.value ? "sun" : "moon"} />
        </button>
      </header>
      {state === "login" && <Login />}
      <main id="main" tabIndex={-1} class={state === "away" || state === "starting" ? "dimmed" : ""} inert={state === "login"}>
        <h1 class="sr">{PAGES.find((entry) => entry.page === page)?.name}</h1>
        {/* For somebody else everything is asked anew. */}
        {isKnown && (
          <Fragment key={user.value ?? ""}>
            {page === "overview" && <OverviewPage />}
            {page === "sql" && <SqlPage />}
            {page === "time" && <TimePage />}
            {page === "room" && <RoomPage />}
          </Fragment>
        )}
      </main>
      <Footer />
      <TipLayer />
    </>
  );
}

function Footer() {
  const [version, setVersion] = useState("");
  const state = connection.value;
  // Of the requests it is the first: its answer tells whether the server wants a login.
  const mayAsk = state === "ok" || state === "unknown";
  useEffect(() => {
    if (!mayAsk) return;
    select<{ version: string }>("SELECT version() AS version")
      .then(([row]) => setVersion(/\((millrace .*)\)/.exec(row?.version ?? "")?.[1] ?? ""))
      .catch(() => {});
  }, [mayAsk]);
  return (
    <footer class="foot quiet">
      <span>{version}</span>
      <a href="/console/third-party.txt">Licences of what this page contains</a>
    </footer>
  );
}

/** Whether the server answers. While it does not, it is asked until it does. */
function Pulse() {
  const state = connection.value;
  useEffect(() => {
    if (state !== "away" && state !== "starting") return;
    const timer = setInterval(() => {
      if (document.visibilityState === "visible") select("SELECT 1").catch(() => {});
    }, RETRY_MS);
    return () => clearInterval(timer);
  }, [state]);
  const text = { unknown: "asking the server", ok: "connected", starting: "the server starts", away: "the server is away; trying again", login: "log in" }[state];
  return (
    <span class={`pulse ${state}`} role="status" data-tip={connectionDetail.value || undefined}>
      <i /> <span>{text}</span>
    </span>
  );
}

function Login() {
  const [name, setName] = useState("millrace");
  const [secret, setSecret] = useState("");
  const [byToken, setByToken] = useState(false);
  const [error, setError] = useState("");
  const [isAsking, setAsking] = useState(false);
  const first = useRef<HTMLInputElement>(null);
  useEffect(() => first.current?.focus(), [byToken]);
  const submit = async (event: Event) => {
    event.preventDefault();
    setAsking(true);
    setError("");
    try {
      if (!(await logIn(byToken ? "" : name, secret))) setError(byToken ? "This token is not known." : "The name or the password is wrong.");
    } catch (failure) {
      setError(failure instanceof Error ? failure.message : String(failure));
    }
    setSecret("");
    setAsking(false);
  };
  return (
    <div class="login-box">
      <form class="login-form" onSubmit={(event) => void submit(event)} aria-label="log in">
        <h2>Log in</h2>
        {!byToken && (
          <label>
            Role
            <input ref={first} value={name} autocomplete="username" required onInput={(event) => setName(event.currentTarget.value)} />
          </label>
        )}
        <label>
          {byToken ? "Token" : "Password"}
          <input
            ref={byToken ? first : undefined}
            type="password"
            value={secret}
            autocomplete="current-password"
            required
            onInput={(event) => setSecret(event.currentTarget.value)}
          />
        </label>
        {error && (
          <p class="fault" role="alert">
            {error}
          </p>
        )}
        <p class="actions">
          <button class="main" disabled={isAsking}>
            {isAsking ? "…" : "Log in"}
          </button>
          <button type="button" class="plain" onClick={() => setByToken(!byToken)}>
            {byToken ? "with a password" : "with a token"}
          </button>
        </p>
        <p class="quiet">It is kept in the memory of this page only.</p>
      </form>
    </div>
  );
}
