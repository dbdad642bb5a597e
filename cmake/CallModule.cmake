# Quicker calls of our operators from Python, through the C++ interfaces of torch and Python (csrc/call).
#
# As RecordLibrary: built where it compiles, named after the torch and the Python it is for, and everything
# works without it.
set(call_source "${CMAKE_CURRENT_SOURCE_DIR}/csrc/call/call.cpp")
if(NOT SYNCFREE_CALL_COMPILES_${TORCH_VERSION})
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(SYNCFREE_CALL_COMPILES_${TORCH_VERSION} "${CMAKE_BINARY_DIR}/call" SOURCES "${call_source}"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_DIR}/include;${Python_INCLUDE_DIRS}"
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE call_errors)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
endif()

if(SYNCFREE_CALL_COMPILES_${TORCH_VERSION})
  Python_add_library(syncfree_call MODULE WITH_SOABI "${call_source}")
  set_target_properties(syncfree_call PROPERTIES PREFIX "" OUTPUT_NAME "syncfree_call-${SYNCFREE_RECORD_TORCH}")
  target_include_directories(syncfree_call SYSTEM PRIVATE "${TORCH_DIR}/include")
  target_link_libraries(syncfree_call PRIVATE "${TORCH_DIR}/lib/libtorch_python.so" "${TORCH_DIR}/lib/libtorch_cpu.so"
    "${TORCH_DIR}/lib/libc10.so")
  install(TARGETS syncfree_call LIBRARY DESTINATION lib)
else()
  message(WARNING "syncfree: csrc/call does not compile against torch ${TORCH_VERSION} and Python ${Python_VERSION}, so "
    "calls take the host a microsecond more. All else works.\n${call_errors}")
endif()
