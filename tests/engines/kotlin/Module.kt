package org.pytorch.executorch

import java.io.File

/** Stands for ExecuTorch's class of this name (extension/android/executorch_android), with its signatures and its one trap. */
class EValue

class Module(private val traced: Boolean) {
    var executions = 0
    var drains = 0
    private var since = 0

    fun execute(methodName: String, vararg inputs: EValue): Array<EValue> {
        executions += 1
        since += 1
        return arrayOf(*inputs).also { check(methodName == "forward") }
    }

    fun etdump(outputPath: String): Boolean {
        if (!traced) return false
        check(since > 0) { "the runtime would crash here" }
        since = 0
        drains += 1
        File(outputPath).writeText("ETDump")
        return true
    }
}
