import java.io.File

/**
 * Uploads ETDumps as an app would: BRIDGE METHOD KEY=VALUE... -- FILE..., and prints what became of each. Of a folder all are
 * uploaded, and the wait is printed.
 */
fun main(arguments: Array<String>) {
    val (bridge, method) = arguments
    val divider = arguments.indexOf("--")
    val said = arguments.slice(2 until divider).associate { it.substringBefore("=") to it.substringAfter("=") }
    val uploader = ETDumpUploader(bridge, said)
    for (file in arguments.drop(divider + 1).map(::File)) {
        println(if (file.isDirectory) uploadAll(file, uploader) else uploader.upload(file, method))
    }
}
