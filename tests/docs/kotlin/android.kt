// What Classifier.kt calls of Android. A bitmap of another configuration than ARGB_8888 has no pixels to read.

package android.graphics

class Bitmap private constructor(private val colors: IntArray, val width: Int, val height: Int, val config: Config?) {
    enum class Config { ALPHA_8, RGB_565, ARGB_4444, ARGB_8888, RGBA_F16, HARDWARE }

    fun copy(config: Config, isMutable: Boolean): Bitmap = Bitmap(colors, width, height, config).also { check(!isMutable) }

    fun getPixels(pixels: IntArray, offset: Int, stride: Int, x: Int, y: Int, width: Int, height: Int) {
        check(config != Config.HARDWARE) { "unable to getPixels(), pixel access is not supported on Config#HARDWARE bitmaps" }
        check(offset == 0 && x == 0 && y == 0 && stride == this.width && width == this.width && height == this.height)
        colors.copyInto(pixels)
    }

    companion object {
        @JvmStatic
        fun createBitmap(colors: IntArray, width: Int, height: Int, config: Config) = Bitmap(colors, width, height, config)
    }
}
