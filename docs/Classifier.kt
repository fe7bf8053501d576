// Classifies images with LiteRT and a .tflite file of keras_vit, see mobile.md. Copy this file into your app.

import android.graphics.Bitmap
import com.google.ai.edge.litert.Accelerator
import com.google.ai.edge.litert.CompiledModel
import com.google.ai.edge.litert.LiteRtException
import java.io.File
import java.util.zip.ZipFile
import kotlin.math.PI
import kotlin.math.abs
import kotlin.math.ceil
import kotlin.math.floor
import kotlin.math.max
import kotlin.math.min
import kotlin.math.round
import kotlin.math.roundToInt
import kotlin.math.sin
import org.json.JSONObject

/** The EXIF orientation of a camera frame by its `rotationDegrees`. */
val ORIENTATIONS = mapOf(0 to 1, 90 to 6, 180 to 3, 270 to 8)

/**
 * A model on the CPU, or with `gpu` on the GPU if the phone has one that runs it. Class names and preprocessing are
 * read from the file. Call it from one thread at a time, and not from the main thread.
 */
class Classifier(file: File, gpu: Boolean = false, numThreads: Int = 4) : AutoCloseable {
    val preprocessing = Preprocessing(archived(file, "preprocessing.json"))
    val classNames = archived(file, "labels.txt").trimEnd('\n').split("\n")
    private val model: CompiledModel

    init {
        val cpu = CompiledModel.Options(Accelerator.CPU)
        cpu.cpuOptions = CompiledModel.CpuOptions(numThreads = numThreads)
        model = try {
            CompiledModel.create(file.path, if (gpu) CompiledModel.Options(Accelerator.GPU) else cpu)
        } catch (error: LiteRtException) {
            if (gpu) CompiledModel.create(file.path, cpu) else throw error
        }
    }

    private val inputs = model.createInputBuffers("classify")
    private val outputs = model.createOutputBuffers("classify")

    /** The likeliest classes of an image and their probabilities; `orientation` as in EXIF data. */
    fun classify(bitmap: Bitmap, orientation: Int = 1, top: Int = 5): List<Pair<String, Float>> {
        inputs[0].writeFloat(preprocessing.pixels(bitmap, orientation))
        model.run(inputs, outputs, "classify")
        return classNames.zip(outputs[0].readFloat().toList()).sortedByDescending { it.second }.take(top)
    }

    override fun close() {
        (inputs + outputs).forEach { it.close() }
        model.close()
    }
}

/** A text in a .tflite file, which is also a zip file. */
fun archived(file: File, name: String): String = ZipFile(file).use { zip ->
    zip.getInputStream(requireNotNull(zip.getEntry(name)) { "$file has no $name" }).bufferedReader().readText()
}

/** Resizes and crops images as preprocessing.json in a .tflite file says. */
class Preprocessing(json: String) {
    private val fields = JSONObject(json)
    private val resize = fields.getString("resize")
    private val cropFraction = fields.getDouble("crop_fraction")
    private val interpolation = fields.getString("interpolation")
    private val antialias = fields.getBoolean("antialias")
    private val channels = fields.getJSONArray("mean").length()
    private val height = fields.getJSONArray("image_size").getInt(0)
    private val width = fields.getJSONArray("image_size").getInt(1)

    /** What the model takes: (height, width, 3), or 1 for gray, in [0, 255]. */
    fun pixels(bitmap: Bitmap, orientation: Int = 1): FloatArray {
        // HARDWARE bitmaps have no pixels to read.
        val readable = if (bitmap.config == Bitmap.Config.ARGB_8888) bitmap else bitmap.copy(Bitmap.Config.ARGB_8888, false)
        val colors = IntArray(bitmap.width * bitmap.height)
        readable.getPixels(colors, 0, bitmap.width, 0, 0, bitmap.width, bitmap.height)
        return pixels(colors, bitmap.width, bitmap.height, orientation)
    }

    /** The same as a bitmap of the model's size, for MediaPipe: rounded, RGB. */
    fun bitmap(bitmap: Bitmap, orientation: Int = 1): Bitmap {
        val values = pixels(bitmap, orientation)
        val colors = IntArray(width * height) { i ->
            (0..2).fold(255) { color, channel -> color shl 8 or values[i * channels + channel % channels].roundToInt() }
        }
        return Bitmap.createBitmap(colors, width, height, Bitmap.Config.ARGB_8888)
    }

    /** The same of `stored` colors (ARGB), row by row, which are upright after a turn by `orientation`. */
    fun pixels(stored: IntArray, storedWidth: Int, storedHeight: Int, orientation: Int): FloatArray {
        val exchanged = orientation in 5..8
        val oldHeight = if (exchanged) storedWidth else storedHeight
        val oldWidth = if (exchanged) storedHeight else storedWidth
        val upsideDown = orientation in listOf(3, 4, 7, 8)
        val mirrored = orientation in listOf(2, 3, 6, 7)
        fun value(y: Int, x: Int, channel: Int): Int { // of the upright image
            val row = if (upsideDown) oldHeight - 1 - y else y
            val column = if (mirrored) oldWidth - 1 - x else x
            val color = stored[if (exchanged) column * storedWidth + row else row * storedWidth + column]
            if (channels == 3) return color shr (16 - 8 * channel) and 255
            val (red, green, blue) = intArrayOf(color shr 16 and 255, color shr 8 and 255, color and 255)
            return (19595 * red + 38470 * green + 7471 * blue + 32768) shr 16 // as Pillow's mode "L"
        }
        val (rows, columns) = taps(oldHeight, oldWidth)
        val clipped = { sum: Double -> min(255.0, max(0.0, sum)) }
        val lines = arrayOfNulls<DoubleArray>(oldHeight) // rows of the image in the new width
        fun line(y: Int) = lines[y] ?: DoubleArray(width * channels) { at ->
            val (first, weights) = columns[at / channels]
            val sum = weights.indices.sumOf { weights[it] * value(y, first + it, at % channels) }
            if (antialias) clipped(sum) else sum // Pillow clips what overshoots after each axis, TensorFlow at the end
        }.also { lines[y] = it }
        val pixels = FloatArray(height * width * channels)
        rows.forEachIndexed { row, (first, weights) ->
            val near = weights.indices.map { line(first + it) }
            for (at in 0 until width * channels) {
                pixels[row * width * channels + at] = clipped(weights.indices.sumOf { weights[it] * near[it][at] }).toFloat()
            }
        }
        return pixels
    }

    /** For each row, and for each column, of the result: the first one of the image, and the weights from there on. */
    private fun taps(oldHeight: Int, oldWidth: Int): List<List<Pair<Int, DoubleArray>>> {
        val area = resize == "shortest_area"
        val (old, kept) = listOf(oldHeight, oldWidth) to listOf(height, width)
        val least = kept.map { floor(it / cropFraction + 1e-6) }
        val scale = max(least[0] / old[0], least[1] / old[1])
        return old.indices.map { axis ->
            val side = old[axis] * scale
            val new = if (resize == "squash") least[axis] else max(least[axis], if (area) round(side) else floor(side + 1e-6))
            val offset = (new - kept[axis]) / 2
            val start = (if (area) floor(offset) else round(offset)).toInt()
            List(kept[axis]) { tap(start + it, old[axis], old[axis] / new) }
        }
    }

    private fun tap(new: Int, old: Int, scale: Double): Pair<Int, DoubleArray> {
        val area = resize == "shortest_area"
        if (interpolation == "nearest" && !area) return ((new + 0.5f) * scale.toFloat()).toInt() to doubleArrayOf(1.0)
        val stretch = if (antialias) max(1.0, scale) else 1.0
        val radius = mapOf("bilinear" to 1, "bicubic" to 2, "lanczos3" to 3, "lanczos5" to 5)[interpolation] ?: 0
        val reach = if (area) (scale + 1) / 2 else radius * stretch
        val center = (new + 0.5) * scale
        val first = max(0, ceil(center - reach - 0.5).toInt())
        val last = min(old - 1, floor(center + reach - 0.5).toInt())
        val weights = DoubleArray(last - first + 1) {
            val distance = abs(first + it + 0.5 - center)
            if (area) max(0.0, minOf(1.0, scale, reach - distance)) else weight(distance / stretch, radius)
        }
        val sum = weights.sum()
        return first to DoubleArray(weights.size) { weights[it] / sum }
    }

    private fun weight(x: Double, radius: Int) = when {
        x >= radius -> 0.0
        interpolation == "bilinear" -> 1 - x
        interpolation == "bicubic" && x < 1 -> (1.5 * x - 2.5) * x * x + 1
        interpolation == "bicubic" -> ((2.5 - 0.5 * x) * x - 4) * x + 2
        x < 1e-6 -> 1.0
        else -> sin(PI * x) * sin(PI * x / radius) * radius / (PI * PI * x * x)
    }
}
