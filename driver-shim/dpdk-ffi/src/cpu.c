/*
 * Ends the process in words on a CPU that DPDK is not built for. DPDK's libraries have constructors, which would end
 * it by SIGILL before main; what stands in .preinit_array runs before those. Compiled for any x86-64.
 */
#include <unistd.h>

static void require_cpu(void)
{
	static const char line[] =
		"gnomon: this CPU has no SSE4.2 and POPCNT (x86-64-v2), which DPDK is built for; "
		"give a virtual machine another type of CPU: host, or x86-64-v2-AES\n";

	__builtin_cpu_init();
	if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"))
		return;
	if (write(STDERR_FILENO, line, sizeof(line) - 1) < 0)
		_exit(2);
	_exit(1);
}

__attribute__((section(".preinit_array"), used)) static void (*const at_start)(void) = require_cpu;
