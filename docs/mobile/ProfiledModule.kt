import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module

/** Runs a module, and leaves an ETDump in [folder] after each [every] executions. Call it from one thread. */
class ProfiledModule(private val module: Module, private val folder: File, private val every: Int = 20) {
    private var executions = 0

    fun execute(method: String, vararg inputs: EValue): Array<EValue> {
        val outputs = module.execute(method, *inputs)
        executions += 1
        if (executions >= every) drain(method)
        return outputs
    }

    /** What was recorded since the last drain; null where nothing was, or the build has no tracer. */
    fun drain(method: String): File? {
        if (executions == 0) return null // a second drain without an execution in between crashes the runtime
        executions = 0
        val part = File(folder, "${System.nanoTime()}.part")
        val whole = File(folder, "$method-${part.nameWithoutExtension}.etdp")
        return if (module.etdump(part.path) && part.renameTo(whole)) whole else null.also { part.delete() }
    }
}
