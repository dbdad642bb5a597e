# Names of torch's operators for the sync detector, through torch's C++ ABI (csrc/record).
#
# Built where it compiles, and left out with a warning where a later torch has changed that interface:
# everything else keeps to the stable ABI, and must not become uninstallable for the sake of this. The
# name says for which torch it is, so that libraries for several may lie side by side.
string(REGEX REPLACE "^([0-9]+\\.[0-9]+)\\.[0-9]+(\\+.*)?$" "\\1" SYNCFREE_RECORD_TORCH "${TORCH_VERSION}")

set(record_source "${CMAKE_CURRENT_SOURCE_DIR}/csrc/record/record.cpp")
if(NOT SYNCFREE_RECORD_COMPILES_${TORCH_VERSION})
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  try_compile(SYNCFREE_RECORD_COMPILES_${TORCH_VERSION} "${CMAKE_BINARY_DIR}/record" SOURCES "${record_source}"
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_DIR}/include;${CMAKE_CURRENT_SOURCE_DIR}/csrc"
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE record_errors)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
endif()

if(SYNCFREE_RECORD_COMPILES_${TORCH_VERSION})
  add_library(syncfree_record MODULE "${record_source}")
  set_target_properties(syncfree_record PROPERTIES OUTPUT_NAME "syncfree_record-${SYNCFREE_RECORD_TORCH}")
  target_include_directories(syncfree_record PRIVATE csrc)
  target_include_directories(syncfree_record SYSTEM PRIVATE "${TORCH_DIR}/include")
  target_link_libraries(syncfree_record PRIVATE "${TORCH_DIR}/lib/libtorch_cpu.so" "${TORCH_DIR}/lib/libc10.so")
  install(TARGETS syncfree_record LIBRARY DESTINATION lib)
else()
  message(WARNING "syncfree: csrc/record does not compile against torch ${TORCH_VERSION}, so the sync detector "
    "will not name operators and forward lines. All else works.\n${record_errors}")
endif()
