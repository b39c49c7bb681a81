// Search from a local folder. Browsers refuse to start a Worker from file://, and the theme's search runs in one.
// For file:// only, this file replaces Worker with an object of the same interface whose script runs in a hidden frame.
// The file's name must contain "iframe-worker": the theme then adds no copy of its own from another host.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      // The script in the frame answers with postMessage(data): hand the data to the listeners of this object.
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const script = inside.document.createElement("script");
      script.src = new URL(url, document.baseURI).href;
      script.onload = () => {
        this.inside = inside;
        for (const data of this.waiting.splice(0)) this.postMessage(data);
      };
      inside.document.body.append(script);
    }

    postMessage(data) {
      // The event belongs to the frame's own realm, as its listeners expect.
      if (this.inside) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }

    terminate() {}
  };
}
