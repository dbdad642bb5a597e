# Parts that need torch's C++ interface, which is kept within one minor version, where all others keep to the
# stable ABI.
#
# Such a part is built where it compiles and left out with a warning where a later torch has changed that
# interface: syncfree must not become uninstallable for the sake of it. Its file's name says for which torch it
# is, so that those for several may lie side by side.
string(REGEX REPLACE "^([0-9]+\\.[0-9]+)\\.[0-9]+(\\+.*)?$" "\\1" SYNCFREE_TORCH_MINOR "${TORCH_VERSION}")

# check_torch_source(<result> <sources> <loss> [<include directory>...]): whether the sources compile with
# torch's headers; warns of the loss if they do not.
function(check_torch_source result sources loss)
  set(compiles ${result}_${TORCH_VERSION})
  if(NOT ${compiles})
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    try_compile(${compiles} "${CMAKE_BINARY_DIR}/${result}" SOURCES ${sources}
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${TORCH_DIR}/include;${ARGN}" -DCMAKE_UNITY_BUILD=ON
        -DCMAKE_UNITY_BUILD_BATCH_SIZE=0
      CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON OUTPUT_VARIABLE errors)
  endif()
  if(NOT ${compiles})
    message(WARNING "syncfree: ${sources} do not compile against torch ${TORCH_VERSION}, so ${loss}. All else "
      "works.\n${errors}")
  endif()
  set(${result} "${${compiles}}" PARENT_SCOPE)
endfunction()
