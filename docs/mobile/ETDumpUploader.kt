import java.io.File
import java.io.IOException
import java.net.HttpURLConnection
import java.net.URI
import java.net.URLEncoder
import java.util.zip.GZIPOutputStream

/** What became of an ETDump. [answer] is JSON: counts of events, or what is wrong with the file. */
sealed interface Outcome {
    data class Taken(val answer: String) : Outcome // delete the file
    data class Refused(val answer: String) : Outcome // delete it, it will be refused again
    data class Later(val waitSeconds: Long, val why: String) : Outcome // keep it: sent again, it shows once
}

/**
 * Sends ETDumps to the bridge at [bridge], such as "https://profiles.example.com". It waits for the network: call it from a
 * worker. [said] is what a file does not say: parameters of POST /v1/etdump, such as "model" to "camera@1.0".
 */
class ETDumpUploader(private val bridge: String, private val said: Map<String, String>) {
    fun upload(etdump: File, method: String): Outcome {
        val parameters = said + mapOf("method" to method, "ended_at" to nanoseconds(etdump.lastModified()))
        val query = parameters.entries.joinToString("&") { (key, value) -> "${encoded(key)}=${encoded(value)}" }
        val connection = URI("$bridge/v1/etdump?$query").toURL().openConnection() as HttpURLConnection
        try {
            connection.requestMethod = "POST"
            connection.doOutput = true
            connection.connectTimeout = 10_000
            connection.readTimeout = 30_000
            connection.setChunkedStreamingMode(0) // the body is not held in memory
            connection.setRequestProperty("Content-Type", "application/octet-stream")
            connection.setRequestProperty("Content-Encoding", "gzip")
            connection.setRequestProperty("otel-bridge-sent-unix-ns", nanoseconds(System.currentTimeMillis()))
            GZIPOutputStream(connection.outputStream).use { body -> etdump.inputStream().use { it.copyTo(body) } }
            val code = connection.responseCode
            val stream = if (code < 400) connection.inputStream else connection.errorStream
            val answer = stream?.use { it.readBytes().decodeToString() }.orEmpty()
            return when (code) {
                200 -> Outcome.Taken(answer)
                400, 413, 500 -> Outcome.Refused(answer) // the bridge's word on this file; else of the way there
                else -> Outcome.Later(connection.getHeaderField("Retry-After")?.toLongOrNull() ?: 30, answer)
            }
        } catch (error: IOException) {
            return Outcome.Later(30, error.toString())
        } finally {
            connection.disconnect()
        }
    }

    private fun encoded(text: String): String = URLEncoder.encode(text, "UTF-8")

    private fun nanoseconds(milliseconds: Long): String = "${milliseconds}000000"
}
