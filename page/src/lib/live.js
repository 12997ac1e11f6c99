// What a job does, as it is committed, over the deaths of the schedulers that tell it.
import { useEffect, useRef, useState } from "preact/hooks";
import { API } from "./api.js";
import { signal } from "./store.js";

const PAUSES_MS = [250, 500, 1000, 2000, 4000];

/** Whether anybody looks: a browser opens only six connections to a host, and tabs in the background need none. */
const isSeen = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  isSeen.value = !document.hidden;
});

/**
 * A stream of server-sent events that goes on. The browser itself connects again, with Last-Event-ID, when a connection
 * breaks; where it gives up, because somebody answered something else, a new stream is opened at `url()`.
 */
class Follower {
  constructor(url, onMessage, onState) {
    this.url = url;
    this.onMessage = onMessage;
    this.onState = onState;
    this.tries = 0;
    this.timer = 0;
    this.source = null;
    this.isOver = false;
    this.stopListening = isSeen.listen(() => (isSeen.value ? this.open() : this.pause()));
    if (isSeen.value) this.open();
  }

  open() {
    if (this.isOver) return;
    this.pause();
    const source = new EventSource(this.url());
    this.source = source;
    source.onopen = () => {
      this.tries = 0;
      this.onState("live");
    };
    const take = (message) => this.onMessage(message);
    source.onmessage = take;
    for (const name of ["events", "progress", "output"]) source.addEventListener(name, take);
    source.addEventListener("end", () => {
      this.close();
      this.onState("ended");
    });
    source.onerror = () => {
      this.onState("reconnecting");
      if (source.readyState !== EventSource.CLOSED) return;
      this.timer = setTimeout(() => this.open(), PAUSES_MS[Math.min(this.tries, PAUSES_MS.length - 1)]);
      this.tries += 1;
    };
  }

  pause() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  close() {
    this.isOver = true;
    this.stopListening();
    this.pause();
  }
}

/**
 * Follow the events of a job after a position: `onBatch(position, events)` gets every batch once and in order, whoever
 * tells it. Nothing is followed while `after` is null. Returns "connecting", "live", "reconnecting" or "ended".
 */
export function useEvents(jobId, after, onBatch) {
  const [state, setState] = useState("connecting");
  const receiver = useRef(onBatch);
  receiver.current = onBatch;
  useEffect(() => {
    if (after === null) return undefined;
    let position = after;
    setState("connecting");
    const take = (message) => {
      const next = Number(message.lastEventId);
      if (!(next > position)) return; // another scheduler has sent it before
      position = next;
      const data = JSON.parse(message.data);
      receiver.current(next, Array.isArray(data) ? data : [data]);
    };
    const follower = new Follower(() => `${API}/jobs/${encodeURIComponent(jobId)}/events?after=${position}`, take, setState);
    return () => follower.close();
  }, [jobId, after === null]);
  return state;
}

/** Follow the stream at `url()`, below the API's root, to its end: `onMessage` gets each one. Returns the same as `useEvents`. */
export function useStream(key, url, onMessage) {
  const [state, setState] = useState("connecting");
  const receiver = useRef(onMessage);
  receiver.current = onMessage;
  useEffect(() => {
    setState("connecting");
    const follower = new Follower(() => API + url(), (message) => receiver.current(message), setState);
    return () => follower.close();
  }, [key]);
  return state;
}

/** Follow a job's progress while `isWanted`: `onProgress(progress)` gets the latest. Returns the same as `useEvents`. */
export function useProgress(jobId, isWanted, onProgress) {
  const [state, setState] = useState("connecting");
  const receiver = useRef(onProgress);
  receiver.current = onProgress;
  useEffect(() => {
    if (!isWanted) return undefined;
    setState("connecting");
    const url = `${API}/jobs/${encodeURIComponent(jobId)}/progress`;
    const follower = new Follower(() => url, (message) => receiver.current(JSON.parse(message.data)), setState);
    return () => follower.close();
  }, [jobId, isWanted]);
  return state;
}
