// The camera: shows what it sees, and takes one image.

export class Camera {
  stream = null;

  /** `element` finds a part of the page by its id; `hasImage` says whether one is shown when the camera is off. */
  constructor(element, hasImage) {
    this.element = element;
    this.hasImage = hasImage;
  }

  async start() {
    if (!navigator.mediaDevices) throw new Error("Browsers give the camera only to pages of https:// or localhost.");
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
      this.element("video").srcObject = this.stream;
      await this.element("video").play();
    } catch (error) {
      this.stop();
      throw new Error(`The camera cannot be used: ${error.message}.`);
    }
    this.toggle(true);
    this.element("shoot").focus();
  }

  /** Takes the image, as a Blob, and stops. */
  async shoot() {
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
    // A button that is hidden loses the keyboard's focus to nowhere.
    if (!on && document.activeElement === this.element("shoot")) this.element("camera").focus();
    this.element("video").hidden = this.element("shoot").hidden = !on;
    this.element("stage").hidden = on || !this.hasImage();
    this.element("hint").hidden = on || this.hasImage();
    this.element("camera").textContent = on ? "Stop the camera" : "Use the camera";
  }
}
