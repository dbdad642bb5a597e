# Finds the user's torch by asking their Python.
#
# pip isolates a build with PYTHONPATH, not with another interpreter, so an interpreter started without
# those variables still sees the user's packages and plain `pip install .` works. The stable ABI makes it
# safe to compile against any version from SYNCFREE_MINIMUM_TORCH on.
set(SYNCFREE_MINIMUM_TORCH 2.11)

execute_process(
  COMMAND ${CMAKE_COMMAND} -E env --unset=PYTHONPATH --unset=PYTHONNOUSERSITE
          ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/find_torch.py
  OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE failed)
if(failed)
  # Other isolation (uv's) hides torch from that interpreter; without isolation, this interpreter sees it.
  execute_process(
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/find_torch.py
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed)
endif()
if(failed)
  message(FATAL_ERROR
    "syncfree: no torch is installed for ${Python_EXECUTABLE}.\n"
    "Install it first, then syncfree:\n"
    "  pip install 'torch>=${SYNCFREE_MINIMUM_TORCH}'\n"
    "  pip install .\n"
    "If torch is installed but your installer isolates builds in another environment (uv does):\n"
    "  pip install scikit-build-core pybind11 ninja cmake && pip install --no-build-isolation .")
endif()
list(GET found 0 TORCH_DIR)
list(GET found 1 TORCH_VERSION)
list(GET found 2 TORCH_CUDA_VERSION)   # "none" in a CPU build
list(GET found 3 SYNCFREE_FOUND_GPUS)  # compute capabilities such as 90, or "none"

string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor "${TORCH_VERSION}")
if(torch_minor VERSION_LESS SYNCFREE_MINIMUM_TORCH)
  message(FATAL_ERROR
    "syncfree needs torch ${SYNCFREE_MINIMUM_TORCH} or newer (its stable ABI), but found torch "
    "${TORCH_VERSION} in ${TORCH_DIR}.\nUpgrade it:\n  pip install 'torch>=${SYNCFREE_MINIMUM_TORCH}'")
endif()

add_library(torch_stable INTERFACE)
target_include_directories(torch_stable SYSTEM INTERFACE "${TORCH_DIR}/include")
target_compile_definitions(torch_stable INTERFACE TORCH_TARGET_VERSION=0x020b000000000000)
target_link_libraries(torch_stable INTERFACE
  "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")
