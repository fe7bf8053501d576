// Shows the camera's video and captures one image.

export class Camera {
  stream = null;

  /** `element` returns the element with an id; `hasImage` returns whether an image is shown when the camera is off. */
  constructor(element, hasImage) {
    this.element = element;
    this.hasImage = hasImage;
  }

  async start() {
    if (!navigator.mediaDevices) throw new Error("Browsers allow the camera only on pages of https:// or localhost.");
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      this.element("video").srcObject = this.stream;
      await this.element("video").play();
    } catch (error) {
      this.stop();
      throw new Error(`The camera is not available: ${error.message}.`);
    }
    this.toggle(true);
    this.element("capture").focus();
  }

  /** Captures an image as a Blob, and stops. */
  async capture() {
    const video = this.element("video");
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
    canvas.getContext("2d").drawImage(video, 0, 0);
    this.stop();
    return new Promise((resolve) => canvas.toBlob(resolve));
  }

  stop() {
    if (!this.stream) return;
    for (const track of this.stream.getTracks()) track.stop();
    this.stream = null;
    this.toggle(false);
  }

  toggle(on) {
    // Hiding the focused button would lose the keyboard focus.
    if (!on && document.activeElement === this.element("capture")) this.element("camera").focus();
    this.element("video").hidden = this.element("capture").hidden = !on;
    this.element("viewer").hidden = on || !this.hasImage();
    this.element("hint").hidden = on || this.hasImage();
    this.element("camera").textContent = on ? "Stop camera" : "Use camera";
  }
}
