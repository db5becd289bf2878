import java.io.File
import org.pytorch.executorch.EValue
import org.pytorch.executorch.Module

/** Runs a module as an app would: FOLDER COUNT EVERY [untraced], and prints the names of the ETDumps and what was asked of it. */
fun main(arguments: Array<String>) {
    val (folder, count, every) = arguments
    val module = Module(traced = arguments.size == 3)
    val profiled = ProfiledModule(module, File(folder), every.toInt())
    repeat(count.toInt()) { profiled.execute("forward", EValue()) }
    val left = listOf(profiled.drain("forward"), profiled.drain("forward"))
    println("left ${left.map { it != null }}, ${module.executions} executions, ${module.drains} drains")
}
