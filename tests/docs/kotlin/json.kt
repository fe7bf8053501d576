// Android's org.json for flat objects.

package org.json

class JSONObject(private val json: String) {
    private fun value(key: String) = Regex("\"$key\": *(\\[[^]]*]|\"[^\"]*\"|[^,}\\s]+)").find(json)!!.groupValues[1]

    fun getString(key: String): String = value(key).trim('"')

    fun getDouble(key: String): Double = value(key).toDouble()

    fun getBoolean(key: String): Boolean = value(key).toBooleanStrict()

    fun getJSONArray(key: String) = JSONArray(value(key))
}

class JSONArray(json: String) {
    private val values = json.trim('[', ']').split(",").map { it.trim() }

    fun length(): Int = values.size

    fun getInt(index: Int): Int = values[index].toInt()
}
