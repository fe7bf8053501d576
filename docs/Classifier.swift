// Classifies images with TensorFlowLiteSwift and a .tflite file of keras_vit, see mobile.md. Copy this file into your app.

import CoreGraphics
import Foundation
import ImageIO
import TensorFlowLite

/// A model on the CPU, or with `gpu` on the GPU if that runs it. Class names and preprocessing are read from the file.
/// Call it from one thread at a time, and not from the main thread.
final class Classifier {
  let preprocessing: Preprocessing
  let classNames: [String]
  private let interpreter: Interpreter

  init(file: URL, gpu: Bool = false, numThreads: Int = 4) throws {
    let texts = archived(try Data(contentsOf: file, options: .mappedIfSafe))
    guard let json = texts["preprocessing.json"], let labels = texts["labels.txt"] else {
      throw CocoaError(.fileReadCorruptFile)
    }
    preprocessing = try JSONDecoder().decode(Preprocessing.self, from: Data(json.utf8))
    classNames = labels.split(separator: "\n").map(String.init)
    var options = Interpreter.Options()
    options.threadCount = numThreads
    options.isXNNPackEnabled = true
    let onGpu = gpu ? try? Interpreter(modelPath: file.path, delegates: [MetalDelegate()]) : nil
    interpreter = try onGpu ?? Interpreter(modelPath: file.path, options: options)
    try interpreter.allocateTensors()
  }

  /// The likeliest classes of an image and their probabilities.
  func classify(_ image: CGImage, orientation: CGImagePropertyOrientation = .up, top: Int = 5) throws -> [(String, Float)] {
    let pixels = preprocessing.pixels(image, orientation: orientation)
    try interpreter.copy(pixels.withUnsafeBufferPointer { Data(buffer: $0) }, toInputAt: 0)
    try interpreter.invoke()
    let output = try interpreter.output(at: 0).data
    let probabilities = output.withUnsafeBytes { Array($0.bindMemory(to: Float32.self)) }
    return Array(zip(classNames, probabilities).sorted { $0.1 > $1.1 }.prefix(top))
  }
}

/// The texts by name in the uncompressed ZIP archive at the end of a .tflite file: its central directory lists them.
func archived(_ data: Data) -> [String: String] {
  func number(_ place: Int, _ bytes: Int) -> Int {
    (0..<bytes).reduce(0) { $0 | Int(data[place + $1]) << (8 * $1) }
  }
  func text(_ start: Int, _ count: Int) -> String { String(decoding: data[start..<start + count], as: UTF8.self) }
  let end = data.count - 22  // of the record after the directory
  guard end >= 0, number(end, 4) == 0x0605_4b50 else { return [:] }
  var texts: [String: String] = [:]
  var entry = number(end + 16, 4)
  for _ in 0..<number(end + 10, 2) {
    let header = number(entry + 42, 4)
    let start = header + 30 + number(header + 26, 2) + number(header + 28, 2)
    texts[text(entry + 46, number(entry + 28, 2))] = text(start, number(entry + 24, 4))
    entry += 46 + number(entry + 28, 2) + number(entry + 30, 2) + number(entry + 32, 2)
  }
  return texts
}

/// Resizes and crops images as preprocessing.json in a .tflite file says.
struct Preprocessing: Decodable {
  let image_size: [Int]  // height, width
  let resize: String
  let crop_fraction: Double
  let interpolation: String
  let antialias: Bool
  let mean: [Double]

  /// What the model takes: (height, width, 3), or 1 for gray, in [0, 255].
  func pixels(_ image: CGImage, orientation: CGImagePropertyOrientation = .up) -> [Float] {
    let (width, height) = (image.width, image.height)
    // In the image's own color space, as training ignores profiles.
    let own = image.colorSpace.flatMap { $0.model == .rgb && $0.supportsOutput ? $0 : nil }
    var rgba = [UInt8](repeating: 0, count: 4 * width * height)
    rgba.withUnsafeMutableBytes { buffer in
      let context = CGContext(
        data: buffer.baseAddress, width: width, height: height, bitsPerComponent: 8, bytesPerRow: 4 * width,
        space: own ?? CGColorSpace(name: CGColorSpace.sRGB)!, bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)!
      context.interpolationQuality = .none
      context.draw(image, in: CGRect(x: 0, y: 0, width: width, height: height))
    }
    return pixels(rgba, width, height, Int(orientation.rawValue))
  }

  /// The same of `stored` pixels (RGBA), row by row, which are upright after a turn by an EXIF orientation.
  func pixels(_ stored: [UInt8], _ storedWidth: Int, _ storedHeight: Int, _ orientation: Int) -> [Float] {
    let exchanged = (5...8).contains(orientation)
    let old = exchanged ? [storedWidth, storedHeight] : [storedHeight, storedWidth]
    let upsideDown = [3, 4, 7, 8].contains(orientation)
    let mirrored = [2, 3, 6, 7].contains(orientation)
    let channels = mean.count
    func value(_ y: Int, _ x: Int, _ channel: Int) -> Double {  // of the upright image
      let row = upsideDown ? old[0] - 1 - y : y
      let column = mirrored ? old[1] - 1 - x : x
      let at = 4 * (exchanged ? column * storedWidth + row : row * storedWidth + column)
      if channels == 3 { return Double(stored[at + channel]) }
      let (red, green, blue) = (Int(stored[at]), Int(stored[at + 1]), Int(stored[at + 2]))
      return Double((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16)  // as Pillow's mode "L"
    }
    let (rows, columns) = (taps(0, old), taps(1, old))
    func clipped(_ sum: Double) -> Double { min(255, max(0, sum)) }
    var lines: [Int: [Double]] = [:]  // rows of the image in the new width
    func line(_ y: Int) -> [Double] {
      if let line = lines[y] { return line }
      var line: [Double] = []
      for (first, weights) in columns {
        for channel in 0..<channels {
          var sum = 0.0
          for (i, weight) in weights.enumerated() { sum += weight * value(y, first + i, channel) }
          line.append(antialias ? clipped(sum) : sum)  // Pillow clips after each axis, TensorFlow at the end
        }
      }
      lines[y] = line
      return line
    }
    return rows.flatMap { first, weights in
      let near = weights.indices.map { line(first + $0) }
      return near[0].indices.map { at in Float(clipped(zip(weights, near).reduce(0) { $0 + $1.0 * $1.1[at] })) }
    }
  }

  /// For each row (axis 0) or column (1) of the result: the first one of the image, and the weights from there on.
  private func taps(_ axis: Int, _ old: [Int]) -> [(Int, [Double])] {
    let least = image_size.map { (Double($0) / crop_fraction + 1e-6).rounded(.down) }
    let side = Double(old[axis]) * max(least[0] / Double(old[0]), least[1] / Double(old[1]))
    let area = resize == "shortest_area"
    let resized = area ? side.rounded(.toNearestOrEven) : (side + 1e-6).rounded(.down)
    let new = resize == "squash" ? least[axis] : max(least[axis], resized)
    let start = Int(((new - Double(image_size[axis])) / 2).rounded(area ? .down : .toNearestOrEven))
    return (0..<image_size[axis]).map { tap(start + $0, old[axis], Double(old[axis]) / new) }
  }

  private func tap(_ new: Int, _ old: Int, _ scale: Double) -> (Int, [Double]) {
    let area = resize == "shortest_area"
    if interpolation == "nearest" && !area { return (Int((Float(new) + 0.5) * Float(scale)), [1]) }
    let stretch = antialias ? max(1, scale) : 1
    let radii: [String: Double] = ["bilinear": 1, "bicubic": 2, "lanczos3": 3, "lanczos5": 5]
    let radius = radii[interpolation] ?? 0
    let reach = area ? (scale + 1) / 2 : radius * stretch
    let center = (Double(new) + 0.5) * scale
    let first = max(0, Int((center - reach - 0.5).rounded(.up)))
    let last = min(old - 1, Int((center + reach - 0.5).rounded(.down)))
    let weights: [Double] = (first...last).map { place in
      let distance = abs(Double(place) + 0.5 - center)
      return area ? max(0, min(1, scale, reach - distance)) : weight(distance / stretch, radius)
    }
    let sum = weights.reduce(0, +)
    return (first, weights.map { $0 / sum })
  }

  private func weight(_ x: Double, _ radius: Double) -> Double {
    if x >= radius { return 0 }
    if interpolation == "bilinear" { return 1 - x }
    if interpolation == "bicubic" { return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((2.5 - 0.5 * x) * x - 4) * x + 2 }
    return x < 1e-6 ? 1 : radius * sin(.pi * x) * sin(.pi * x / radius) / (.pi * .pi * x * x)
  }
}
