// Prepares images, number.rgb with number.txt (width, height, orientation) and number.json, as Classifier.kt does, and
// writes number.pixels and number.bitmap; then classifies with model.tflite and prints the classes.

import android.graphics.Bitmap
import com.google.ai.edge.litert.open
import java.io.File
import java.nio.ByteBuffer
import java.nio.ByteOrder

fun main(arguments: Array<String>) {
    val folder = File(arguments[0])
    for (file in folder.listFiles()!!.filter { it.extension == "json" }) {
        val (width, height, orientation) = File("${file.path.removeSuffix("json")}txt").readText().split(" ").map { it.toInt() }
        val rgb = File("${file.path.removeSuffix("json")}rgb").readBytes().map { it.toInt() and 255 }
        val colors = IntArray(width * height) { 255 shl 24 or (rgb[3 * it] shl 16) or (rgb[3 * it + 1] shl 8) or rgb[3 * it + 2] }
        val bitmap = Bitmap.createBitmap(colors, width, height, Bitmap.Config.HARDWARE)
        val preprocessing = Preprocessing(file.readText())
        val pixels = preprocessing.pixels(bitmap, orientation)
        val buffer = ByteBuffer.allocate(4 * pixels.size).order(ByteOrder.LITTLE_ENDIAN)
        pixels.forEach { buffer.putFloat(it) }
        File("${file.path.removeSuffix("json")}pixels").writeBytes(buffer.array())
        val small = preprocessing.bitmap(bitmap, orientation)
        val small8 = IntArray(small.width * small.height).also { small.getPixels(it, 0, small.width, 0, 0, small.width, small.height) }
        check(small8.all { it ushr 24 == 255 })
        File("${file.path.removeSuffix("json")}bitmap").writeBytes(
            small8.flatMap { listOf(it shr 16, it shr 8, it) }.map { it.toByte() }.toByteArray()
        )
    }
    val plain = Bitmap.createBitmap(IntArray(64) { 90 shl 16 or (50 shl 8) or 20 }, 8, 8, Bitmap.Config.RGB_565)
    for (gpu in listOf(false, true)) {
        Classifier(File(folder, "model.tflite"), gpu).use { classifier ->
            check(open.size == 3)
            println(classifier.classify(plain, top = 2).joinToString { "${it.first}=${it.second.toInt()}" })
        }
        check(open.isEmpty())
    }
}
