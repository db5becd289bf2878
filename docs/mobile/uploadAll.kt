import java.io.File

/** Sends every ETDump of [folder], the oldest first. Seconds to wait before the rest is tried again; null: nothing is left. */
fun uploadAll(folder: File, uploader: ETDumpUploader): Long? {
    val etdumps = folder.listFiles { file -> file.extension == "etdp" }.orEmpty().sortedBy { it.lastModified() }
    for (etdump in etdumps) {
        when (val outcome = uploader.upload(etdump, method = etdump.name.substringBeforeLast("-"))) {
            is Outcome.Taken, is Outcome.Refused -> etdump.delete()
            is Outcome.Later -> return outcome.waitSeconds
        }
    }
    return null
}
