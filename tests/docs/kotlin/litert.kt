// What Classifier.kt calls of LiteRT, with the signatures of litert/kotlin in google-ai-edge/LiteRT (2026-08-21). There
// is no GPU; a model returns the first values that it gets.

package com.google.ai.edge.litert

val open = mutableListOf<AutoCloseable>()

enum class Accelerator { NONE, CPU, GPU, NPU }

class LiteRtException(message: String) : Exception(message)

abstract class JniHandle internal constructor() : AutoCloseable {
    init {
        open.add(this)
    }

    final override fun close() {
        check(open.remove(this))
    }
}

class TensorBuffer internal constructor() : JniHandle() {
    internal var values = floatArrayOf()

    @Throws(LiteRtException::class)
    fun writeFloat(data: FloatArray) {
        values = data
    }

    @Throws(LiteRtException::class)
    fun readFloat(): FloatArray = values
}

class CompiledModel private constructor() : JniHandle() {
    data class CpuOptions(
        val numThreads: Int? = null,
        val xnnPackFlags: Int? = null,
        val xnnPackWeightCachePath: String? = null,
    )

    class Options(internal val accelerators: Set<Accelerator>) {
        constructor(vararg accelerators: Accelerator) : this(setOf(*accelerators))

        var cpuOptions: CpuOptions? = null
    }

    @Throws(LiteRtException::class)
    fun createInputBuffers(signature: String): List<TensorBuffer> = listOf(TensorBuffer()).also { check(signature == "classify") }

    @Throws(LiteRtException::class)
    fun createOutputBuffers(signature: String): List<TensorBuffer> = listOf(TensorBuffer()).also { check(signature == "classify") }

    @Throws(LiteRtException::class)
    fun run(inputs: List<TensorBuffer>, outputs: List<TensorBuffer>, signature: String) {
        outputs[0].values = inputs[0].values.copyOf(3)
    }

    companion object {
        @JvmStatic
        fun create(filePath: String, options: Options = Options(Accelerator.CPU)): CompiledModel {
            if (Accelerator.GPU in options.accelerators) throw LiteRtException("no GPU")
            return CompiledModel()
        }
    }
}
