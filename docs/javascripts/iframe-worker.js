/* Search without a server: browsers start no worker for a page opened from disk (file://), so a hidden frame
   runs the worker's script instead. Messages pass as a worker's would. Elsewhere the browser's own is used. */
(function () {
  "use strict";
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.url = new URL(url, location.href).href;
      this.onmessage = null;
      this.onerror = null;
      this.ready = new Promise((resolve, reject) => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        frame.title = "search";
        frame.onload = () => this.start(frame.contentWindow, resolve, reject);
        document.body.appendChild(frame);
        this.frame = frame;
      });
    }

    start(inner, resolve, reject) {
      if (this.inner) return;
      this.inner = inner;
      inner.postMessage = (data) => this.tell(data);
      inner.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => this.run(url)), Promise.resolve());
      inner.document.head.appendChild(Object.assign(inner.document.createElement("base"), { href: this.url }));
      this.run(this.url).then(resolve, reject);
    }

    run(url) {
      return new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script");
        script.src = new URL(url, this.url).href;
        script.onload = () => resolve();
        script.onerror = () => reject(new Error("a script of the search could not be read"));
        this.inner.document.body.appendChild(script);
      });
    }

    /* From the worker to the page. */
    tell(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (typeof this.onmessage === "function") this.onmessage(event);
    }

    /* From the page to the worker. */
    postMessage(data) {
      this.ready.then(
        () => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })),
        (error) => {
          if (typeof this.onerror === "function") this.onerror(error);
        }
      );
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.Worker = FrameWorker;
})();
